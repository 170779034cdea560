// Parameters beside ones that debug information leaves out, and behind classes of many
// base classes; arrays without elements, or without an end in their type; static members
// by the names of their classes. See values_types.c.
#include <cstdio>
#include <cstring>

#define KEEP(x) asm volatile("" ::"r"(&(x)) : "memory")

struct kept {
	long n;
	kept(long x) : n(x) {}
	kept(const kept &o) : n(o.n) {}
	~kept() {}
};

// LLVM says nothing of the ones that have no use, whose addresses are passed.
// probe: p:registers registers a c d
__attribute__((noinline)) long registers(kept a, kept unused, kept c, long d)
{
	printf("=registers {\"a\":{\"n\":%ld},\"c\":{\"n\":%ld},\"d\":%ld}\n", a.n, c.n, d);
	fflush(stdout);
	KEEP(a);
	KEEP(c);
	return d;
}

// probe: p:stacked stacked a g i k
__attribute__((noinline)) long stacked(kept a, kept b, kept c, kept d, kept e, kept f, kept g, kept h, kept i, kept j, long k)
{
	printf("=stacked {\"a\":{\"n\":%ld},\"g\":{\"n\":%ld},\"i\":{\"n\":%ld},\"k\":%ld}\n", a.n, g.n, i.n, k);
	fflush(stdout);
	KEEP(a);
	KEEP(g);
	KEEP(i);
	return k;
}

template <int N> struct layer : layer<N - 1> {};
template <> struct layer<0> {
	union {
		int i;
		double d;
	};
	unsigned index;
};

// probe: p:deep deep a.i a.index b c.i c.index
__attribute__((noinline)) int deep(layer<20> a, int b, layer<12> c)
{
	printf("=deep {\"a.i\":%d,\"a.index\":%u,\"b\":%d,\"c.i\":%d,\"c.index\":%u}\n", a.i, a.index, b, c.i, c.index);
	fflush(stdout);
	KEEP(a);
	KEEP(c);
	return b;
}

// probe-O0: p:empty values_left.cc:EMPTY none no more
__attribute__((noinline)) int empty(int n)
{
	double none[0];
	char no[0];
	char more[8] = "beside!";
	KEEP(none);
	KEEP(no);
	KEEP(more);
	printf("=empty {\"none\":[],\"no\":[],\"more\":\"%s\"}\n", more);
	fflush(stdout);
	return n; // EMPTY
}

// probe-O0: p:variable values_left.cc:VARIABLE text
__attribute__((noinline)) int variable(int n)
{
	char text[n];
	memset(text, 'x', (size_t)n);
	KEEP(text);
	printf("=variable {\"text\":\"%.*s\"}\n", n, text);
	fflush(stdout);
	return text[0] + n; // VARIABLE
}

template <class T, int N> struct table {
	static T rows;
};
template <class T, int N> T table<T, N>::rows = T(N);
struct plain {
	static constexpr int columns = 300;
};
plain one;

// probe: p:classes classes columns=plain::columns rows=table<long,3>::rows
__attribute__((noinline)) int classes(int n)
{
	printf("=classes {\"columns\":%d,\"rows\":%ld}\n", plain::columns, table<long, 3>::rows);
	fflush(stdout);
	KEEP(n);
	KEEP(one);
	return n;
}

int main()
{
	layer<20> a;
	layer<12> c;
	a.d = 0, c.d = 0;
	a.i = 20, a.index = 2, c.i = 12, c.index = 1;
	registers(1, 2, 3, 4);
	stacked(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	deep(a, 7, c);
	empty(1), variable(5), variable(40), classes(1);
}
