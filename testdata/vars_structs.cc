// Structures with strings in them, for tests of values printed whole.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

struct inner {
	const char *tag;
	int n;
};

struct item {
	const char *name;
	char *none;
	const char *bad;
	std::string text;
	std::string_view view;
	const char *argv[3];
	inner in[2];
	char fixed[8];
	const unsigned char *bytes;
	long n;
};

struct many {
	const char *s[20];
};

static long sum;

extern "C" __attribute__((noinline)) item *take(item *p, const item &ref, many *m)
{
	sum += p->n + ref.n + (m->s[0] != nullptr);
	asm volatile("" ::: "memory");
	return p;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1;
	char line[16];
	item it{};
	it.name = "a name";
	it.bad = (const char *)8;
	it.text = "more than sixteen bytes of text";
	it.view = std::string_view("viewed and more", 6);
	it.argv[0] = "first";
	it.argv[1] = "";
	it.in[0] = {"one", 1};
	it.in[1] = {"two", 2};
	strcpy(it.fixed, "fixed");
	it.bytes = (const unsigned char *)"bytes";
	it.n = 3;
	item small;
	small = it;
	small.text = "short";
	small.name = "";
	many m{};
	for (int i = 0; i < 20; i++)
		m.s[i] = "x";
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (long i = 0; i < rounds; i++)
		take(&it, small, &m);
	printf("done %ld\n", sum);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
