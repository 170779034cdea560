// Classes as parameters and results: those that are passed by their bytes, and
// those that can't be copied so, in every form that says it.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

struct Plain {
	int x;
	long y;
};
struct Own {
	long n;
	~Own() { n = 0; }
};
struct Part {
	Own own;
};

__attribute__((noinline)) int take(Plain p, Own o, Part q, std::shared_ptr<int> sp, std::string text, std::vector<int> &v, int last)
{
	asm volatile("" ::: "memory");
	return p.x + o.n + q.own.n + *sp + text.size() + v[1] + last;
}

__attribute__((noinline)) std::shared_ptr<int> give(int n) { return std::make_shared<int>(n); }
__attribute__((noinline)) Part part(long n) { return Part{{n}}; }
__attribute__((noinline)) Plain plain(long n) { return Plain{7, n}; }

int main()
{
	std::vector<int> v{9, 8};
	printf("%d\n", take({1, 2}, {3}, {{4}}, give(5), "value", v, 6));
	printf("%ld %ld\n", part(11).own.n, plain(12).y);
}
