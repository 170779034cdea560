// Functions of which a compiler puts what is rarely run somewhere else: pieces that
// are jumped to, with nothing but the caller's return address on the stack. Calls
// that throw never return. The program says how many there were.
#include <cstdio>
#include <cstdlib>

namespace ns {
struct Server {
	int state = 0;
	int handle(int x);
	int retry(int x);
};

int __attribute__((noinline)) Server::handle(int x)
{
	if (__builtin_expect(x % 4 == 3, 0))
		throw x;
	state += x;
	return x + 1;
}

static void __attribute__((noinline, cold)) note(int *x)
{
	*x ^= 64;
}

// Its piece goes back to where it came from.
static int __attribute__((noinline)) refused(int x)
{
	if (__builtin_expect(x % 8 == 7, 0))
		note(&x);
	return x * 3;
}

int __attribute__((noinline)) Server::retry(int x)
{
	return refused(x) + state;
}
}

int main(int argc, char **argv)
{
	ns::Server s;
	int n = argc > 1 ? atoi(argv[1]) : 4000, thrown = 0;
	long sum = 0;

	for (int i = 0; i < n; i++) {
		try {
			sum += s.handle(i);
		} catch (int) {
			thrown++;
		}
		sum += s.retry(i);
	}
	return thrown == n / 4 && sum ? 42 : 1;
}
