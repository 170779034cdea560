// Classes that are passed by their address, where that lies on the stack, and what
// counts behind weak pointers, which optimized programs leave to the library. See
// values_types.c.
#include <cstdio>
#include <memory>

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

// probe: p:weak weak w gone
__attribute__((noinline)) void weak(const std::weak_ptr<int> &w, const std::weak_ptr<int> &gone)
{
	printf("=weak {\"w\":%d,\"gone\":null}\n", *w.lock());
	fflush(stdout);
	asm volatile("" ::"r"(&gone) : "memory");
}

int main()
{
	auto here = std::make_shared<int>(-7), left = std::make_shared<int>(8);
	std::weak_ptr<int> w = here, gone = left;
	left.reset();
	weak(w, gone);
	return passed(1, 2, 3, 4, 5, 6, 7, 8, 9) != 9;
}
