// A program of what C++ adds to variables: references, this, members of base
// classes, enum classes, templates, namespaces, constructors, lambdas.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

static volatile int sink;

namespace shapes {
enum class Kind : unsigned char { Round, Square = 7 };

struct Base {
	int id;
	explicit Base(int id) : id(id) {}
	virtual ~Base() {}
	virtual int area() const = 0;
};

class Box : public Base {
	int w, h;
	Kind kind = Kind::Square;

public:
	static int made;
	Box(int w, int h) : Base(made + 1), w(w), h(h) { made++; }
	__attribute__((noinline)) int area() const override
	{
		int a = w * h;
		sink = a; // line: area body
		return a;
	}
	__attribute__((noinline)) int scale(int by, const Kind &k)
	{
		w *= by;
		sink = w + (int)k; // line: scale body
		return w;
	}
};
int Box::made = 0;

template <typename T> __attribute__((noinline)) T largest(const std::vector<T> &all)
{
	T best = all[0];
	for (const T &one : all)
		if (one > best)
			best = one; // line: largest loop
	return best;
}
}

__attribute__((noinline)) int swap_in(int &a, long &&b, const std::string &text)
{
	a += (int)b;
	sink = a + (int)text.size(); // line: swap_in body
	return a;
}

__attribute__((noinline)) static int caller(int n)
{
	auto twice = [n](int v) { return v * n; };
	char16_t wide = u'x';
	char32_t wider = U'y';
	sink = wide + (int)wider;
	return twice(n) + twice(2);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < rounds; i++) {
		shapes::Box box(3, 4 + i);
		sink += box.area();
		sink += box.scale(2, shapes::Kind::Round);
		sink += shapes::largest(std::vector<int>{ 3, 9, 4 });
		sink += (int)shapes::largest(std::vector<double>{ 0.5, 2.5 });
		int a = 5;
		sink += swap_in(a, 77, "some text");
		sink += caller(argc + 2);
	}
	printf("%d\n", sink);
	return 0;
}
