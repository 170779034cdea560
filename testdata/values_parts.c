// Code that GCC takes apart: a function whose copy for the program's calls returns
// nothing, as none uses it, and a line that is also in a part that rarely runs.
#include <stdio.h>
#include <stdlib.h>

static __attribute__((noinline)) long quiet(const int *p, int n)
{
	printf("%d\n", *p * n);
	return (long)*p * n;
}

__attribute__((cold, noinline)) void failed(int n) { fprintf(stderr, "%d\n", n); exit(2); }

__attribute__((noinline)) int divided(int n)
{
	int r = 0;
	for (int i = 0; i < n; i++)
		if (i > 100) failed(i); else printf("%d\n", r += i); // LINE
	return r;
}

int main(int argc, char **argv)
{
	(void)argv;
	quiet(&argc, 3);
	return divided(3) != 3;
}
