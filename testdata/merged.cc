// Functions that are one piece of code: getb is geta by another name, and a linker that
// folds makes more so.
#include <cstdio>

struct A { int x, y; };
struct B { float u, v; };

__attribute__((noinline)) int geta(A *p, int k) { return p->y + k; }
int getb(B *q, int n) __attribute__((alias("_Z4getaP1Ai")));
template <class T> __attribute__((noinline)) int get(T *t) { return *(int *)t; }
extern "C" __attribute__((noinline)) int same_one(int x) { return x + 5; }
extern "C" int same_two(int x) __attribute__((alias("same_one")));

int main()
{
	A a{1, 2};
	B b{1.5f, 2.5f};
	printf("%d\n", geta(&a, 3) + getb(&b, 4) + get(&a) + get(&b) + same_one(1) + same_two(2));
}
