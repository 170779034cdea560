// Parameters of C++ at a function's entry, where what stands before them is
// passed in its own way. See values_types.c.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

struct empty {};
struct emptier : empty { empty e; };
struct tag { enum class kind : uint8_t { one = 1, other = 200 }; };
struct shape {
	int n;
	shape(int n) : n(n) {}
	virtual int area() const { return n; }
	virtual ~shape() = default;
};
struct virtually {
	int n;
	virtual int get() { return n; }
};
struct copied {
	int n;
	copied(int n) : n(n) {}
	copied(const copied &o) : n(o.n) {}
};
struct moved {
	int n;
	moved(int n) : n(n) {}
	moved(const moved &) = delete;
	moved(moved &&o) : n(o.n) {}
};
struct plain {
	int n;
	plain(int n) : n(n) {}
	plain(const plain &) = default;
	int method(int x) { return n + x; }
};
struct holds { plain p; copied c; holds(int n) : p(n), c(n) {} };
struct alignas(16) aligned { int n; };
struct derived : plain { long b; derived(int n) : plain(n), b(-n) {} };
struct floats { float x, y, z; };
struct mixed { double d; int i; };
template <class T> struct box { T v; };

#define NOINLINE __attribute__((noinline))
#define OUT(...) (printf(__VA_ARGS__), fflush(stdout))

// probe: p:after_empty after_empty a b
NOINLINE int after_empty(int a, empty, std::less<>, emptier, int b) { OUT("=after_empty {\"a\":%d,\"b\":%d}\n", a, b); return a + b; }

// probe: p:after_method after_method a b c
NOINLINE int after_method(int a, int (plain::*m)(int), int b, int plain::*d, int c) { OUT("=after_method {\"a\":%d,\"b\":%d,\"c\":%d}\n", a, b, c); plain p(1); return (p.*m)(b) + p.*d; }

// probe: p:returns_shape returns_shape a b
NOINLINE shape returns_shape(int a, int b) { OUT("=returns_shape {\"a\":%d,\"b\":%d}\n", a, b); return shape(a + b); }

// probe: p:returns_virtual returns_virtual a b
// probe: r:virtual_result returns_virtual n=$retval.n a
NOINLINE virtually returns_virtual(int a, int b) { OUT("=returns_virtual {\"a\":%d,\"b\":%d}\n=virtual_result {\"n\":%d,\"a\":%d}\n", a, b, a * b, a); virtually v; v.n = a * b; return v; }

// probe: p:returns_copied returns_copied a b
// probe: r:copied_result returns_copied n=$retval.n b
NOINLINE copied returns_copied(int a, int b) { OUT("=returns_copied {\"a\":%d,\"b\":%d}\n=copied_result {\"n\":%d,\"b\":%d}\n", a, b, a + b, b); return copied(a + b); }

// probe: p:returns_moved returns_moved a b
NOINLINE moved returns_moved(int a, int b) { OUT("=returns_moved {\"a\":%d,\"b\":%d}\n", a, b); return moved(a + b); }

// probe: p:returns_plain returns_plain a b
// probe: r:plain_result returns_plain n=$retval.n a
NOINLINE plain returns_plain(int a, int b) { OUT("=returns_plain {\"a\":%d,\"b\":%d}\n=plain_result {\"n\":%d,\"a\":%d}\n", a, b, a + b, a); return plain(a + b); }

// probe: p:by_value by_value v=v.n c=c.n m=m.n p=p.n h=h.c.n last
NOINLINE int by_value(virtually v, copied c, moved m, plain p, holds h, int last) { OUT("=by_value {\"v\":%d,\"c\":%d,\"m\":%d,\"p\":%d,\"h\":%d,\"last\":%d}\n", v.n, c.n, m.n, p.n, h.c.n, last); return v.n + c.n + m.n + p.n + h.c.n; }

// probe: p:unused unused a b
NOINLINE int unused(int a, std::string, std::unique_ptr<int>, copied, int b) { OUT("=unused {\"a\":%d,\"b\":%d}\n", a, b); return a + b; }

// probe: p:registers registers f m d=d.b dn=d.n x k last
NOINLINE int registers(floats f, mixed m, derived d, double x, tag::kind k, int last) { OUT("=registers {\"f\":{\"x\":%g,\"y\":%g,\"z\":%g},\"m\":{\"d\":%g,\"i\":%d},\"d\":%ld,\"dn\":%d,\"x\":%g,\"k\":\"%s\",\"last\":%d}\n", f.x, f.y, f.z, m.d, m.i, d.b, d.n, x, k == tag::kind::one ? "one" : "other", last); return last; }

// probe: p:padded padded a=a.n b
NOINLINE int padded(aligned a, int b) { OUT("=padded {\"a\":%d,\"b\":%d}\n", a.n, b); return a.n + b; }

// probe: p:boxed boxed v=b.v w=c.v d
NOINLINE int boxed(box<short> b, box<std::less<>>, box<double> c, int d) { OUT("=boxed {\"v\":%d,\"w\":%g,\"d\":%d}\n", b.v, c.v, d); return d; }

// probe: r:pair_result pair_result p=$retval a
NOINLINE std::pair<double, double> pair_result(int a) { OUT("=pair_result {\"p\":{\"first\":%g,\"second\":%g},\"a\":%d}\n", a * 0.5, a + 0.25, a); return {a * 0.5, a + 0.25}; }

// probe: r:mixed_result mixed_result p=$retval first=$retval.first
NOINLINE std::pair<int, double> mixed_result(int a) { OUT("=mixed_result {\"p\":{\"first\":%d,\"second\":%g},\"first\":%d}\n", a, a + 0.25, a); return {a, a + 0.25}; }

// probe: p:many many i=i.n j=j.x k=k.b last
NOINLINE int many(int, int, int, int, int, plain i, floats j, derived k, int last) { OUT("=many {\"i\":%d,\"j\":%g,\"k\":%ld,\"last\":%d}\n", i.n, j.x, k.b, last); return last; }

// probe: p:inherits inherits d=*d
NOINLINE int inherits(const derived *d) { OUT("=inherits {\"d\":{\"<plain>\":{\"n\":%d},\"b\":%ld}}\n", d->n, d->b); return d->n; }

int main()
{
	int n = after_empty(1, {}, {}, {}, 2);
	n += after_method(3, &plain::method, 4, &plain::n, 5);
	n += returns_shape(6, 7).n + returns_virtual(8, 9).n + returns_copied(10, 11).n + returns_moved(12, 13).n + returns_plain(14, 15).n;
	virtually v;
	v.n = 16;
	n += by_value(v, copied(17), moved(18), plain(19), holds(20), 21);
	n += unused(22, "text", nullptr, copied(23), 24);
	n += registers({1.5, 2.5, 3.5}, {4.5, 5}, derived(6), 7.5, tag::kind::other, 8);
	n += padded({25}, 26) + boxed({27}, {}, {28.5}, 29) + int(pair_result(30).first + mixed_result(31).second);
	n += many(1, 2, 3, 4, 5, plain(32), {33.5, 0, 0}, derived(34), 35);
	derived d(36);
	n += inherits(&d);
	return n == 0;
}
