// Classes that are passed by their address, where that lies on the stack. See
// values_types.c.
#include <cstdio>

struct kept {
	long n;
	kept(long x) : n(x) {}
	kept(const kept &o) : n(o.n) {}
	~kept() {}
};

// probe: p:passed passed g h n
__attribute__((noinline)) int passed(kept a, kept b, kept c, kept d, kept e, kept f, kept g, kept h, int n)
{
	printf("=passed {\"g\":{\"n\":%ld},\"h\":{\"n\":%ld},\"n\":%d}\n", g.n, h.n, n);
	fflush(stdout);
	asm volatile("" ::"r"(&a), "r"(&b), "r"(&c), "r"(&d), "r"(&e), "r"(&f), "r"(&g), "r"(&h) : "memory");
	return n;
}

int main() { return passed(1, 2, 3, 4, 5, 6, 7, 8, 9) != 9; }
