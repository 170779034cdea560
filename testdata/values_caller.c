// Parameters that are gone behind the entry, and that the caller still has.
#include <stdio.h>

static volatile int sink;

__attribute__((noinline, noclone)) static int work(int a, int b, int *d, const char *text)
{
	printf("work a=%d b=%d d=%p text=\"%s\"\n", a, b, (void *)d, text);
	sink = 1;
	sink = 2; // GONE
	return sink;
}

static int (*volatile indirect)(int, int, int *, const char *) = work;

__attribute__((noinline)) int outer(int x)
{
	int local[4] = {x, x + 1, x + 2, x + 3}, n = 0;
	for (int i = 0; i < x; i++) {
		n += work(42, x, local, "constant");
		n += local[n & 3];
	}
	return n;
}

int main(void)
{
	int own = 5, n = outer(2);
	n += indirect(7, 8, &own, "other");
	return n + outer(1) == 0;
}
