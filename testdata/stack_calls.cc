// Exceptions through frames, virtual calls, and destructors that run meanwhile.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

volatile long sink;

struct Guard {
	std::string name;
	explicit Guard(const char *n) : name(n) {}
	~Guard() { sink += (long)name.size(); }
};

extern "C" __attribute__((noinline)) long thrower(long n)
{
	Guard g("thrower");
	if (n & 1)
		throw std::runtime_error("odd " + std::to_string(n));
	return n + sink;
}

extern "C" __attribute__((noinline)) long middle(long n)
{
	Guard g("middle");
	return thrower(n) * 2;
}

struct Visitor {
	virtual long visit(std::vector<long> &v);
	virtual ~Visitor() {}
};

__attribute__((noinline)) long Visitor::visit(std::vector<long> &v)
{
	long sum = 0;
	for (long n : v) {
		try {
			sum += middle(n);
		} catch (const std::exception &e) {
			sum += (long)std::string(e.what()).size();
		}
	}
	return sum;
}

int main(int argc, char **argv)
{
	Visitor *volatile v = new Visitor;
	for (long i = 0; i < (argc > 1 ? atol(argv[1]) : 1); i++) {
		std::vector<long> list = {1, 2, 3, 4};
		sink += v->visit(list);
	}
	delete v;
	return sink == 4711;
}
