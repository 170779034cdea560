// Code that is inlined at its function's first byte: a line of it has the variables of
// both. main prints, as the functions call nothing. See values_types.c.
#include <stdio.h>

struct part { int a, b; };

static inline __attribute__((always_inline)) int inner(struct part *p, int k)
{
	int t = p->a * k; // INNER
	return t + p->b;
}

// probe: p:at_inner values_inline.c:INNER a=p->a k b=q->b m
// probe: p:at_outer values_inline.c:OUTER b=q->b m a=p->a k
// probe: p:at_entry outer m k
// probe: p:parameters values_inline.c:INNER $params
__attribute__((noipa)) int outer(struct part *q, int m)
{
	int r = inner(q, m); // OUTER
	return r * m;
}

int main(void)
{
	struct part x = { 3, 4 };
	for (int i = 5; i < 8; i++) {
		printf("=at_inner {\"a\":3,\"k\":%d,\"b\":4,\"m\":%d}\n=at_outer {\"b\":4,\"m\":%d,\"a\":3,\"k\":%d}\n", i, i, i, i);
		printf("=at_entry {\"m\":%d,\"k\":%d}\n=parameters {\"k\":%d}\n", i, i, i);
		outer(&x, i);
	}
	return 0;
}
