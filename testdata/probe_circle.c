// Functions that jump to one another in a circle, some of which leave it by longjmp. After a line on standard input
// they are called, and the program prints how many calls of each have ended by a return, and how many of those of the first
// two came when as many as its second argument says waited already.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLED __attribute__((noinline, noclone))
static volatile long salt = 3;
static jmp_buf out;
enum { LEAVES = 1 << 30 };

CALLED long pong(long x);
CALLED long ping(long x)
{
	salt = 3;
	return x > 0 ? pong(x - 1) : x + salt;
}
CALLED long pong(long x)
{
	salt = 3;
	if (x >= LEAVES)
		longjmp(out, 1);
	return x > 0 ? ping(x - 1) : x - salt;
}

// A larger circle than a row of a common table has room for.
#define RING(n, next) CALLED long r_##n(long x) { salt = 3; return x > 0 ? r_##next(x - 1) : x + salt; }
CALLED long r_0(long x);
RING(9, 0) RING(8, 9) RING(7, 8) RING(6, 7) RING(5, 6) RING(4, 5) RING(3, 4) RING(2, 3) RING(1, 2) RING(0, 1)

#define ONE(n) CALLED long z_##n(long x) { salt = 3; return x * n + salt; }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

CALLED long site(long (*f)(long), long x) { return f(x) + 1; }

int main(int argc, char **argv)
{
	char line[16];
	long pings = 0, pongs = 0, again[2] = {0, 0}, rings = 0, sum = 0, z = 0, wait;

	puts("ready");
	fflush(stdout);
	if (argc < 3 || !fgets(line, sizeof line, stdin))
		return 3;
	wait = atol(argv[2]);
	for (long r = 0; r < atol(argv[1]); r++)
		for (long deep = 0; deep < 2000; deep += deep < 20 ? 1 : 1000) {
			if (setjmp(out) == 0)
				site(ping, LEAVES + 1);
			sum += site(ping, deep);
			long n[2] = {deep / 2 + 1, (deep + 1) / 2};
			pings += n[0];
			pongs += n[1];
			for (int i = 0; i < 2; i++)
				again[i] += n[i] > wait ? n[i] - wait : 0;
			sum += site(z_10, deep) + site(z_49, deep);
			z += 2;
			sum += site(r_0, deep);
			rings += deep + 1;
		}
	printf("done %ld %ld %ld %ld %ld %ld %ld\n", pings, pongs, rings, z, again[0], again[1], sum & 1);
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
