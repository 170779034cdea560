// Containers of C++'s standard library, filled at random; the program prints each
// as kprobe prints it, and then calls a function with it.
#include <array>
#include <bitset>
#include <complex>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stack>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

using namespace std;

static mt19937 rng;
static int upto(int n) { return n <= 0 ? 0 : int(rng() % unsigned(n)); }

struct point {
	short x;
	int y;
	double z;
	bool on;
};
struct person {
	int id;
	string name;
	vector<int> scores;
	map<string, int> by;
};

// What a value is made of, at random.
template <class T> struct make;
template <> struct make<int> { static int get() { return int(rng()); } };
template <> struct make<long> { static long get() { return long(rng()) * long(rng()); } };
template <> struct make<short> { static short get() { return (short)rng(); } };
template <> struct make<double> { static double get() { return upto(2000) / 4.0 - 100; } };
template <> struct make<bool> { static bool get() { return rng() & 1; } };
template <> struct make<string> {
	static string get() {
		string s;
		for (int n = upto(4) ? upto(20) : upto(100); n > 0; n--)
			s += "abcdefghij XYZ-_"[upto(16)];
		return s;
	}
};
template <class T> struct make<const T> : make<T> {};
template <> struct make<point> { static point get() { return {short(rng()), int(rng()), make<double>::get(), make<bool>::get()}; } };
static int howmany() { return upto(5) == 0 ? 0 : upto(4) ? upto(6) : upto(300); }
template <class C> C seq() { C c; for (int n = howmany(); n > 0; n--) c.push_back(make<typename C::value_type>::get()); return c; }
template <class T> struct make<vector<T>> { static vector<T> get() { auto v = seq<vector<T>>(); if (upto(2)) v.reserve(v.size() + 7); return v; } };
template <class T> struct make<list<T>> { static list<T> get() { return seq<list<T>>(); } };
template <class T> struct make<deque<T>> {
	static deque<T> get() {
		deque<T> d;
		for (int n = howmany(); n > 0; n--)
			switch (upto(5)) {
			case 0: case 1: d.push_front(make<T>::get()); break;
			case 2: if (!d.empty()) { d.pop_front(); break; }
			default: d.push_back(make<T>::get());
			}
		return d;
	}
};
template <class T> struct make<forward_list<T>> { static forward_list<T> get() { forward_list<T> l; for (int n = howmany(); n > 0; n--) l.push_front(make<T>::get()); return l; } };
template <class C> C keyed() {
	C c;
	for (int n = howmany(); n > 0; n--)
		c.insert(make<typename C::value_type>::get());
	for (int n = upto(3); n > 0 && !c.empty(); n--)
		c.erase(c.begin());
	return c;
}
template <class T> struct make<set<T>> { static auto get() { return keyed<set<T>>(); } };
template <class T> struct make<multiset<T>> { static auto get() { return keyed<multiset<T>>(); } };
template <class T> struct make<unordered_set<T>> { static auto get() { return keyed<unordered_set<T>>(); } };
template <class K, class V> struct make<map<K, V>> { static auto get() { return keyed<map<K, V>>(); } };
template <class K, class V> struct make<multimap<K, V>> { static auto get() { return keyed<multimap<K, V>>(); } };
template <class K, class V> struct make<unordered_map<K, V>> { static auto get() { return keyed<unordered_map<K, V>>(); } };
template <class K, class V> struct make<unordered_multimap<K, V>> { static auto get() { return keyed<unordered_multimap<K, V>>(); } };
template <class A, class B> struct make<pair<A, B>> { static pair<A, B> get() { A a = make<A>::get(); return {a, make<B>::get()}; } };
template <class... T> struct make<tuple<T...>> { static tuple<T...> get() { return {make<T>::get()...}; } };
template <class T> struct make<optional<T>> { static optional<T> get() { if (upto(3)) return make<T>::get(); return nullopt; } };
template <class T> struct make<unique_ptr<T>> { static unique_ptr<T> get() { if (upto(4)) return make_unique<T>(make<T>::get()); return nullptr; } };
template <class T> struct make<shared_ptr<T>> { static shared_ptr<T> get() { if (upto(4)) return make_shared<T>(make<T>::get()); return nullptr; } };
template <class... T> struct make<variant<T...>> {
	static variant<T...> get() {
		vector<function<variant<T...>()>> all;
		size_t i = 0;
		((all.push_back([] { return variant<T...>(make<T>::get()); }), i++), ...);
		return all[upto(int(i))]();
	}
};
template <class T, size_t N> struct make<array<T, N>> { static array<T, N> get() { array<T, N> a; for (auto &x : a) x = make<T>::get(); return a; } };
template <class T> struct make<stack<T>> { static auto get() { return stack<T>(make<deque<T>>::get()); } };
template <class R, class P> struct make<chrono::duration<R, P>> { static auto get() { return chrono::duration<R, P>(upto(100000) - 50000); } };
template <class T> struct make<weak_ptr<T>> {
	static weak_ptr<T> get() {
		static deque<shared_ptr<T>> kept;
		auto p = make<shared_ptr<T>>::get();
		if (upto(3)) kept.push_back(p);
		return p; // else of what is gone
	}
};
template <size_t N> struct make<bitset<N>> { static bitset<N> get() { bitset<N> b; for (size_t i = 0; i < N; i++) b[i] = rng() & 1; return b; } };
template <> struct make<complex<double>> { static complex<double> get() { return {upto(2000) / 4.0 - 100, upto(2000) / 4.0 - 100}; } };
template <> struct make<person> { static person get() { return {make<int>::get(), make<string>::get(), make<vector<int>>::get(), make<map<string, int>>::get()}; } };

// What kprobe prints: the first 8, and three containers within each other.
enum { ELEMENTS = 8, DEPTH = 3 };
template <class T> void show(ostream &o, const T &x, int depth);
template <class C> void all(ostream &o, const C &c, int depth) {
	if (depth >= DEPTH) { o << "{...}"; return; }
	o << '{';
	int n = 0;
	for (auto &&x : c) {
		if (n) o << ',';
		if (n++ == ELEMENTS) { o << "..."; break; }
		show(o, x, depth + 1);
	}
	o << '}';
}
template <class C> void pairs(ostream &o, const C &c, int depth) {
	if (depth >= DEPTH) { o << "{...}"; return; }
	o << '{';
	int n = 0;
	for (auto &x : c) {
		if (n) o << ',';
		if (n++ == ELEMENTS) { o << "..."; break; }
		o << '[';
		show(o, x.first, depth + 1);
		o << "]=";
		show(o, x.second, depth + 1);
	}
	o << '}';
}
template <class P> void pointee(ostream &o, const P &p, int depth) {
	if (!p) o << "0x0";
	else if (depth >= DEPTH) o << "{...}";
	else show(o, *p, depth + 1);
}
template <class T> struct shower { static void show(ostream &o, const T &x, int) { o << x; } };
template <> struct shower<bool> { static void show(ostream &o, bool x, int) { o << (x ? "true" : "false"); } };
template <> struct shower<string> { static void show(ostream &o, const string &x, int) { o << '"' << x << '"'; } };
template <> struct shower<string_view> { static void show(ostream &o, const string_view &x, int) { o << '"' << x << '"'; } };
template <> struct shower<point> { static void show(ostream &o, const point &p, int) { o << "{x=" << p.x << ",y=" << p.y << ",z=" << p.z << ",on=" << (p.on ? "true" : "false") << '}'; } };
template <> struct shower<person> {
	static void show(ostream &o, const person &p, int d) {
		o << "{id=" << p.id << ",name=\"" << p.name << "\",scores=";
		::show(o, p.scores, d);
		o << ",by=";
		::show(o, p.by, d);
		o << '}';
	}
};
#define LIST(C) template <class... T> struct shower<C<T...>> { static void show(ostream &o, const C<T...> &c, int d) { all(o, c, d); } };
#define MAP(C) template <class... T> struct shower<C<T...>> { static void show(ostream &o, const C<T...> &c, int d) { pairs(o, c, d); } };
#define POINTER(C) template <class... T> struct shower<C<T...>> { static void show(ostream &o, const C<T...> &c, int d) { pointee(o, c, d); } };
LIST(vector) LIST(list) LIST(deque) LIST(forward_list) LIST(set) LIST(multiset) LIST(unordered_set)
MAP(map) MAP(multimap) MAP(unordered_map) MAP(unordered_multimap)
POINTER(unique_ptr) POINTER(shared_ptr)
template <class T, size_t N> struct shower<array<T, N>> { static void show(ostream &o, const array<T, N> &c, int d) { all(o, c, d); } };
template <class T, size_t N> struct shower<span<T, N>> { static void show(ostream &o, const span<T, N> &c, int d) { all(o, c, d); } };
template <class T> struct opened : stack<T> { static const deque<T> &in(const stack<T> &s) { return s.*&opened::c; } };
template <class T> struct shower<stack<T>> { static void show(ostream &o, const stack<T> &c, int d) { all(o, opened<T>::in(c), d); } };
template <class T> struct shower<optional<T>> { static void show(ostream &o, const optional<T> &x, int d) { if (x) ::show(o, *x, d); else o << "nullopt"; } };
template <class A, class B> struct shower<pair<A, B>> { static void show(ostream &o, const pair<A, B> &x, int d) { o << "{first="; ::show(o, x.first, d); o << ",second="; ::show(o, x.second, d); o << '}'; } };
template <class... T> struct shower<tuple<T...>> {
	static void show(ostream &o, const tuple<T...> &x, int d) {
		o << '{';
		apply([&](auto &...e) { int n = 0; ((o << (n++ ? "," : ""), ::show(o, e, d)), ...); }, x);
		o << '}';
	}
};
template <class... T> struct shower<variant<T...>> {
	static void show(ostream &o, const variant<T...> &x, int d) {
		o << "{[" << x.index() << "]=";
		visit([&](auto &e) { ::show(o, e, d); }, x);
		o << '}';
	}
};
template <class C> void bits(ostream &o, const C &c, int depth) {
	if (depth >= DEPTH) { o << "{...}"; return; }
	o << '{';
	for (size_t n = 0; n < c.size(); n++) {
		if (n) o << ',';
		if (n == ELEMENTS) { o << "..."; break; }
		o << (c[n] ? "true" : "false");
	}
	o << '}';
}
template <class A> struct shower<vector<bool, A>> { static void show(ostream &o, const vector<bool, A> &x, int d) { bits(o, x, d); } };
template <size_t N> struct shower<bitset<N>> { static void show(ostream &o, const bitset<N> &x, int d) { bits(o, x, d); } };
template <class T> struct shower<weak_ptr<T>> { static void show(ostream &o, const weak_ptr<T> &x, int d) { pointee(o, x.lock(), d); } };
template <> struct shower<complex<double>> { static void show(ostream &o, const complex<double> &x, int) { o << "{re=" << x.real() << ",im=" << x.imag() << '}'; } };
template <class R, class P> struct shower<chrono::duration<R, P>> {
	static void show(ostream &o, const chrono::duration<R, P> &x, int) {
		o << x.count() << (is_same_v<P, milli> ? "ms" : is_same_v<P, micro> ? "us" : is_same_v<P, ratio<60>> ? "min" : is_same_v<P, ratio<1>> ? "s" : "ns");
	}
};
template <class T> void show(ostream &o, const T &x, int depth) { shower<remove_cv_t<T>>::show(o, x, depth); }

template <class T> void told(const char *name, const T &x) {
	ostringstream o;
	show(o, x, 0);
	cout << name << " x=" << o.str() << endl;
}

#define EACH(X) \
	X(vi, vector<int>) X(vp, vector<point>) X(vs, vector<string>) X(vvi, vector<vector<int>>) X(vvvv, vector<vector<vector<vector<int>>>>) X(vsh, vector<short>) \
	X(vpr, vector<pair<int, double>>) X(vpe, vector<person>) \
	X(li, list<int>) X(ls, list<string>) X(fl, forward_list<int>) X(fs, forward_list<string>) \
	X(di, deque<int>) X(dp, deque<point>) X(ds, deque<string>) X(dsh, deque<short>) \
	X(si, set<int>) X(ss, set<string>) X(ms, multiset<int>) X(ui, unordered_set<int>) X(us, unordered_set<string>) X(ssh, set<short>) \
	X(mii, map<int, int>) X(msi, map<string, int>) X(mis, map<int, string>) X(mshb, map<short, bool>) X(mmii, multimap<int, int>) \
	X(mvs, map<string, vector<string>>) X(mil, map<int, long>) X(mip, map<int, point>) \
	X(umii, unordered_map<int, int>) X(umsi, unordered_map<string, int>) X(umis, unordered_map<int, string>) X(ummi, unordered_multimap<int, int>) X(umsv, unordered_map<string, vector<int>>) \
	X(oi, optional<int>) X(od, optional<double>) X(os, optional<string>) X(ov, optional<vector<int>>) X(op, optional<point>) X(ob, optional<bool>) \
	X(vaid, variant<int, double>) X(vas, variant<int, string, vector<int>>) X(vap, variant<point, bool>) \
	X(tis, tuple<int, string>) X(tid, tuple<int, double, bool>) X(tv, tuple<vector<int>, short, map<int, int>>) X(t1, tuple<string>) \
	X(pii, pair<int, int>) X(psi, pair<string, int>) X(pvv, pair<vector<int>, vector<string>>) \
	X(upi, unique_ptr<int>) X(ups, unique_ptr<string>) X(upp, unique_ptr<point>) X(upv, unique_ptr<vector<int>>) X(vup, vector<unique_ptr<int>>) \
	X(spi, shared_ptr<int>) X(sps, shared_ptr<string>) X(spp, shared_ptr<point>) X(vsp, vector<shared_ptr<string>>) X(spe, shared_ptr<person>) \
	X(ai, array<int COMMA 3>) X(al, array<int COMMA 12>) X(as, array<string COMMA 2>) \
	X(cms, chrono::milliseconds) X(cs, chrono::seconds) X(cmin, chrono::minutes) X(vms, vector<chrono::milliseconds>) \
	X(vb, vector<bool>) X(vvb, vector<vector<bool>>) X(vpb, vector<pair<int, vector<bool>>>) X(b5, bitset<5>) X(b70, bitset<70>) X(b0, bitset<0>) X(vbs, vector<bitset<3>>) \
	X(wpi, weak_ptr<int>) X(wps, weak_ptr<string>) X(vwp, vector<weak_ptr<point>>) X(cx, COMPLEX) \
	X(sti, stack<int>) X(str, string) X(pe, person) X(po, point)
#define COMMA ,
#ifdef _LIBCPP_VERSION // which keeps the parts apart
#define COMPLEX bitset<64>
#else
#define COMPLEX complex<double>
#endif
#define DEFINE(name, ...) extern "C" __attribute__((noinline)) void see_##name(const __VA_ARGS__ &x) { asm volatile("" ::"r"(&x) : "memory"); }
#define CALL(name, ...) { __VA_ARGS__ x = make<__VA_ARGS__>::get(); told(#name, x); see_##name(x); }
EACH(DEFINE)

extern "C" __attribute__((noinline)) void see_sn(const span<int> &x) { asm volatile("" ::"r"(&x) : "memory"); }
extern "C" __attribute__((noinline)) void see_sn3(const span<int, 3> &x) { asm volatile("" ::"r"(&x) : "memory"); }
extern "C" __attribute__((noinline)) void see_sv(const string_view &x) { asm volatile("" ::"r"(&x) : "memory"); }
extern "C" __attribute__((noinline)) void see_moved(const vector<string> &x, const map<int, int> &y) { asm volatile("" ::"r"(&x), "r"(&y) : "memory"); }

int main(int argc, char **argv) {
	rng.seed(argc > 1 ? atoi(argv[1]) : 1);
	for (int i = argc > 2 ? atoi(argv[2]) : 3; i > 0; i--) {
		EACH(CALL)
		auto v = make<vector<int>>::get();
		span<int> s(v);
		told("sn", s), see_sn(s);
		int three[3] = {1, -2, 3};
		span<int, 3> s3(three);
		told("sn3", s3), see_sn3(s3);
		auto t = make<string>::get();
		string_view w(t);
		told("sv", w), see_sv(w);
	}
}
