/*
 * Names in code that is inlined: they are those that the code sees, and not those of the
 * function around it. See values_types.c.
 */
#include <stdio.h>

static int count = 5;
static int shared = 40;

// probe-O0: p:inlined values_seen.c:INLINED count by shared
static inline __attribute__((always_inline)) void inc(int by)
{
	count += by;
	printf("=inlined {\"count\":%d,\"by\":%d,\"shared\":%d}\n", count, by, shared); // INLINED
}

// probe-O0: p:around values_seen.c:AROUND count shared
int main(int argc, char **argv)
{
	int count = 99 + argc;
	int shared = 7;

	inc(3);
	printf("=around {\"count\":%d,\"shared\":%d}\n", count, shared); // AROUND
	return argc > 1 ? argv[1][0] : 0;
}
