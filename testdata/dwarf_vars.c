// A program of variables of every kind, in every kind of place. Its functions
// are called in a loop, so that a debugger or a probe sees each of them.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum color { RED, GREEN = 5, BLUE = -3 };
enum flags { F_NONE = 0, F_READ = 1, F_WRITE = 2, F_EXEC = 4 };

struct point {
	int x, y;
};

struct conn {
	int fd;
	char name[16];
	const char *peer;
	struct point at;
	struct point *to;
	struct conn *next;
	unsigned ro : 1, mode : 3;
	int level : 5;
	uint64_t bytes;
	bool up;
	double rate;
	int hist[4];
	struct point path[3];
	enum color color;
	union {
		int as_int;
		float as_float;
	} u;
	int (*handler)(int);
};

int counter = 41;
static struct conn table[2];
static const char *banner = "hello";
__thread int tls_level = 7;
static volatile int sink;

__attribute__((noinline)) int twice(int v)
{
	return v * 2;
}

static inline __attribute__((always_inline)) int mix(int a, int b)
{
	int c = a * 3;
	c += b;
	sink = c;
	return c ^ 0x55;
}

__attribute__((noinline)) int scalars(signed char c, unsigned char uc, short s, unsigned short us, int i, unsigned u,
				      long l, unsigned long ul, bool b, enum color col, enum flags fl, float f, double d)
{
	int local = i + s;
	static int calls;
	calls++;
	sink = local; // line: scalars body
	counter += local;
	sink += c + uc + us + u + l + ul + b + col + fl + (int)f + (int)d;
	return local + calls;
}

__attribute__((noinline)) int pointers(struct conn *c, const char *text, int *numbers, void *raw, int (*fn)(int))
{
	int sum = 0;
	for (int i = 0; i < 4; i++) {
		int n = numbers[i];
		sum += fn(n); // line: pointers loop
	}
	sink = sum + c->fd + (int)strlen(text); // line: pointers body
	tls_level += raw != 0;
	return sum + tls_level;
}

__attribute__((noinline)) long inliner(int a, int b)
{
	long r = mix(a, b);
	sink = r;
	r += mix(b, 7);
	if (a > 3) {
		int inner = a * b;
		sink = inner; // line: inner block
		r += inner;
	}
	return r;
}

__attribute__((noinline)) struct point by_value(struct point p, struct conn big, int last)
{
	struct point q = { p.y + last, p.x + big.fd };
	sink = q.x;
	return q;
}

__attribute__((noinline)) double floats(float f, double d, float g)
{
	double sum = f + d * g;
	sink = (int)sum;
	return sum;
}

__attribute__((noinline)) int array(int n)
{
	int values[8];
	char buf[32];
	for (int i = 0; i < 8; i++)
		values[i] = n * i;
	snprintf(buf, sizeof buf, "value %d", n);
	sink = values[n & 7] + buf[0]; // line: array body
	return sink;
}

int main(int argc, char **argv)
{
	int numbers[4] = { 3, 1, 4, 1 };
	struct conn *c = &table[0];
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	c->fd = 42;
	strcpy(c->name, "alpha");
	c->peer = "10.0.0.1";
	c->at = (struct point){ 11, -22 };
	c->to = &table[1].at;
	c->next = &table[1];
	c->ro = 1;
	c->mode = 5;
	c->level = -7;
	c->bytes = 1ull << 40;
	c->up = true;
	c->rate = 2.5;
	for (int i = 0; i < 4; i++)
		c->hist[i] = i * i;
	for (int i = 0; i < 3; i++)
		c->path[i] = (struct point){ i, -i };
	c->color = BLUE;
	c->u.as_int = 0x3f800000;
	c->handler = twice;
	table[1].fd = 43;
	table[1].at = (struct point){ 7, 8 };
	strcpy(table[1].name, "beta");
	table[1].peer = banner;
	for (int i = 0; i < rounds; i++) {
		sink += scalars(-5, 200, -300, 60000, 1000 + i, 4000000000u, -1L, 1ul << 63, true, GREEN, F_READ | F_EXEC, 1.5f, -2.25);
		sink += pointers(c, "some text", numbers, c, twice);
		sink += inliner(argc + 4, i + 2);
		sink += by_value((struct point){ 1, 2 }, *c, 9).x;
		sink += (int)floats(0.5f, 1.25, 3.0f);
		sink += array(argc + i + 2);
	}
	printf("%d\n", sink + counter);
	return 0;
}
