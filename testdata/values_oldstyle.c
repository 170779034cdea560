// Values of C functions without prototypes: their callers pass a double for a float.
// gdb 13 takes it for a float in optimized code. See values_types.c.
#include <stdio.h>

// probe: p:unprototyped by_old f d g on=n
__attribute__((noinline)) int by_old(f, n, d, g) float f; short n; double d; float g;
{
	printf("=unprototyped {\"f\":%g,\"d\":%g,\"g\":%g,\"on\":%d}\n", f, d, g, n);
	return n;
}

int main(void)
{
	by_old(0.5f, -3, 2.25, -7.5f);
	by_old(-1e9f, 3, 0.125, 0.75f);
	return 0;
}
