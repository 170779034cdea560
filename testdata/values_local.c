// Functions that no other file calls, and parameters that debug information has no place for.
#include <stdio.h>

struct pair { double first; float second; };
struct three { float a, b, c; };

// probe: p:e1 spread p=p k=k
__attribute__((noinline, noclone)) static double spread(struct pair p, int k)
{
	printf("=e1 {\"p\":{\"first\":%g,\"second\":%g},\"k\":%d}\n", p.first, p.second, k);
	return k;
}

// probe: p:e2 some t=t unused=unused last=last
__attribute__((noinline, noclone)) static float some(struct three t, int unused, int last)
{
	if (last)
		printf("=e2 {\"t\":{\"a\":%g,\"b\":%g,\"c\":%g},\"unused\":%d,\"last\":%d}\n", last + 0.5, last + 0.25, last + 1.0, 3 * last, last);
	return t.b * (float)last;
}

__attribute__((noinline)) static double half(int unused, struct three t, int last)
{
	return (double)t.a + (double)t.b * 2 + last;
}

struct large { long a, b, c; };

__attribute__((noinline)) static struct large made(int n, int *more)
{
	struct large l = {n, *more + 1, 7};
	printf("made %d\n", n);
	return l;
}

int main(int argc, char **argv)
{
	double sum = 0;
	(void)argv;
	for (int i = argc; i < argc + 3; i++) {
		struct pair p = {i + 0.5, (float)i * 0.25f};
		struct three t = {(float)i + 0.5f, (float)i + 0.25f, (float)i + 1};
		sum += spread(p, 7 * i) + (double)some(t, 3 * i, i);
		sum += half(100 * i, t, i + 7);
		int more = 2 * i;
		made(i, &more);
	}
	return sum < 0;
}
