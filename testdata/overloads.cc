// Overloads, with and without code of their own, and clones.
#include <cstdio>
#include <map>
#include <string>
#include <vector>
#define NOINLINE __attribute__((noinline))

namespace ns {
struct Server {
	NOINLINE int handle(std::string const &s, int n) { return std::printf("handle string %s %d\n", s.c_str(), n); }
	NOINLINE int handle(double d) { return std::printf("handle double %g\n", d); }
	NOINLINE int handle(unsigned u) const { return std::printf("handle unsigned %u\n", u); }
	NOINLINE int handle(std::vector<std::string> const &v, std::map<int, long> *m) { return std::printf("handle vector %zu %zu\n", v.size(), m->size()); }
};
template <class T> NOINLINE int add(T a, T b) { return std::printf("add %g\n", double(a + b)); }
static NOINLINE int local(long n) { return std::printf("local long %ld\n", n); }
static NOINLINE int local(const char *s) { return std::printf("local text %s\n", s); }
}  // namespace ns

int outer(int n) { return n + 1; }

int main()
{
	ns::Server s;
	std::map<int, long> m;
	int n = s.handle("text", 1) + s.handle(2.5) + const_cast<ns::Server const &>(s).handle(3u) + s.handle({"a", "b"}, &m);
	n += ns::add(1, 2) + ns::add(1.5, 2.0) + ns::local(4) + ns::local("five");
	return outer(n) == 0;
}
