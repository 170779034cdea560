// Functions that jump on to another or return by themselves, functions that jump to those,
// and calls that are left by longjmp where other functions are called next from the same
// instruction, with the same stack pointer. After a line on standard input as many threads
// as the second argument says run as many rounds as the first; then the program prints a sum.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned salt = 3;
static __thread jmp_buf out;
enum { LEAVES = 1 << 30 };

__attribute__((noinline, noclone)) unsigned last(unsigned x)
{
	if (x >= LEAVES)
		longjmp(out, 1);
	return x * salt;
}

#define ONE(n) \
	__attribute__((noinline, noclone)) unsigned j_##n(unsigned x) { salt = 3; return x & 1 ? x * n + salt : last(x + 2 * n); }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

#define ON(n) \
	__attribute__((noinline, noclone)) unsigned k_##n(unsigned x) { salt = 3; return j_##n(x + 2); }
ON(10) ON(11) ON(12) ON(13) ON(14) ON(15) ON(16) ON(17) ON(18) ON(19)

// One instruction that calls any of them.
__attribute__((noinline, noclone)) unsigned site(unsigned (*f)(unsigned), unsigned x) { return f(x) + 1; }

static unsigned (*const all[])(unsigned) = {
#define OF(t) j_##t##0, j_##t##1, j_##t##2, j_##t##3, j_##t##4, j_##t##5, j_##t##6, j_##t##7, j_##t##8, j_##t##9,
	OF(1) OF(2) OF(3) OF(4) k_10, k_11, k_12, k_13, k_14, k_15, k_16, k_17, k_18, k_19,
};

static void *work(void *rounds)
{
	unsigned sum = 0;
	for (unsigned n = 0; n < (unsigned)(long)rounds; n++) {
		for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
			sum += site(all[i], 2 * n + i % 2);
		if (n % 5 != 0)
			continue;
		// Left behind one jump, and behind two; then called without any.
		if (setjmp(out) == 0)
			site(j_20, LEAVES);
		sum += site(last, 4);
		if (setjmp(out) == 0)
			site(k_12, LEAVES);
		sum += site(last, 4) + site(j_12, 4) + site(j_12, 5);
	}
	return (void *)(long)sum;
}

int main(int argc, char **argv)
{
	char line[16];
	unsigned sum = 0;
	pthread_t threads[16];
	int many;

	puts("ready");
	fflush(stdout);
	if (argc < 3 || !fgets(line, sizeof line, stdin))
		return 3;
	many = atoi(argv[argc - 1]);
	for (int i = 0; i < many; i++)
		pthread_create(&threads[i], 0, work, (void *)atol(argv[argc - 2]));
	for (int i = 0; i < many; i++) {
		void *got;
		pthread_join(threads[i], &got);
		sum += (unsigned)(long)got;
	}
	printf("done %u\n", sum);
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
