// A call that stays active: held prints "in" and returns when it reads an x. Then the program calls
// other a thousand times and prints "done". A line end ends it with status 7.
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) int next(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

// It returns by a jump to next, so a return probe sees it by a return trampoline.
__attribute__((noinline)) int held(int n)
{
	char c;
	if (write(1, "in\n", 3) != 3 || read(0, &c, 1) != 1 || c != 'x')
		_exit(7);
	return next(n);
}

__attribute__((noinline)) int other(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n * 3 + 1;
}

int main(void)
{
	int n = 0, sum = 0;
	puts("ready");
	fflush(stdout);
	for (;;) {
		n = held(n);
		for (int i = 0; i < 1000; i++)
			sum += other(i);
		printf("done %d %d\n", n, sum & 1);
		fflush(stdout);
	}
}
