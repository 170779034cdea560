// Operators, conversions, lambdas, templates, inline namespaces, clones: names that
// kprobe prints and takes back.
#include <map>
#include <string>
#include <vector>
#include <functional>
#include <iostream>
#include <memory>
#include <algorithm>
namespace lib { inline namespace v2 {
struct M { int n; 
 int operator()(int a) const; int operator()(int a, int b) const; M operator<<(int) const; M operator>>(int) const; bool operator<(M const&) const; bool operator>(M const &) const;
 M &operator+=(int); M operator++(int); M &operator++(); M operator-() const; M operator-(M const&) const; int operator[](int) const; M *operator->(); M &operator,(int);
 operator int() const; explicit operator bool() const; operator std::string() const; template <class T> operator std::vector<T>() const; operator char const *() const;
 void *operator new(size_t); void *operator new[](size_t); void operator delete(void *); void operator delete[](void *); bool operator==(M const &) const; auto operator<=>(M const &) const -> int;
 M operator%(int) const; M operator&(int) const; M *operator&(); M operator~() const; bool operator!() const; bool operator&&(M const &) const; M operator*() const; M operator->*(int) const; M operator^=(int); int operator|(int) const; };
int M::operator()(int a) const { return n + a; } int M::operator()(int a, int b) const { return n + a * b; } M M::operator<<(int k) const { return {n << k}; } M M::operator>>(int k) const { return {n >> k}; }
bool M::operator<(M const &o) const { return n < o.n; } bool M::operator>(M const &o) const { return n > o.n; } M &M::operator+=(int k) { n += k; return *this; } M M::operator++(int) { M m = *this; n++; return m; } M &M::operator++() { n++; return *this; }
M M::operator-() const { return {-n}; } M M::operator-(M const &o) const { return {n - o.n}; } int M::operator[](int k) const { return n * k; } M *M::operator->() { return this; } M &M::operator,(int) { return *this; }
M::operator int() const { return n; } M::operator bool() const { return n; } M::operator std::string() const { return std::to_string(n); } template <class T> M::operator std::vector<T>() const { return std::vector<T>(n); } M::operator char const *() const { return "x"; }
void *M::operator new(size_t s) { return malloc(s); } void *M::operator new[](size_t s) { return malloc(s); } void M::operator delete(void *p) { free(p); } void M::operator delete[](void *p) { free(p); } bool M::operator==(M const &o) const { return n == o.n; } auto M::operator<=>(M const &o) const -> int { return n - o.n; }
M M::operator%(int k) const { return {n % k}; } M M::operator&(int k) const { return {n & k}; } M *M::operator&() { return this; } M M::operator~() const { return {~n}; } bool M::operator!() const { return !n; } bool M::operator&&(M const &o) const { return n && o.n; } M M::operator*() const { return {n}; } M M::operator->*(int k) const { return {n+k}; } M M::operator^=(int k) { return {n ^= k}; } int M::operator|(int k) const { return n | k; }
template M::operator std::vector<int>() const; template M::operator std::vector<std::map<int, std::string>>() const;
std::ostream &operator<<(std::ostream &o, M const &m) { return o << m.n; }
unsigned long long operator""_kb(unsigned long long k) { return k * 1024; }
template <class A, class B = std::map<int, A>> struct Pair { A a; B b; Pair(A x) : a(x) {} ~Pair() {} template <class C> int mix(C c, std::function<int(A, C)> f) { return f(a, c); } static int count(int (*p)(A, B const &), int A::*m); };
template <class A, class B> int Pair<A, B>::count(int (*)(A, B const &), int A::*) { return 1; }
template struct Pair<M>; template struct Pair<M, std::vector<std::string>>;
template <class T, int N, bool B> int vals(T (&a)[N]) { return a[0] + N + B; }
template int vals<int, 3, (3 > 2)>(int (&)[3]); template int vals<char, 4, false>(char (&)[4]);
template <class... T> int var(T... t) { return (int(t) + ... + 0); } template int var<int, long, unsigned char>(int, long, unsigned char); template int var<>();
} }
namespace { struct Hidden { virtual int run(int a) { return a; } virtual ~Hidden() {} }; struct Sub : virtual Hidden { int run(int a) override { return a + 1; } }; template <class F> int call(F f) { return f(2); } }
static int twice(int k) { static auto l = [](int q) { return q + 1; }; return l(k) + [=](int z) { return z + k; }(3) + call([&](auto v) { return v * k; }); }
int (*pick(int n))(char const *, ...) { return n ? printf : nullptr; }
struct Big { int a[100]; }; __attribute__((noinline)) static int part(Big *b, int n) { if (__builtin_expect(n > 100, 0)) { for (int i = 0; i < n; i++) b->a[i % 100] += std::cout.good(); throw std::string("x"); } return b->a[n]; }
int main(int c, char **v) { using namespace lib; M m{c}; std::function<int(int)> f = [m](int k) { return m(k); }; Hidden *h = c > 1 ? new Hidden : new Sub; Big b{}; try { part(&b, c); part(&b, c * 2); } catch (std::string &s) { }
 Pair<M> p(m); std::sort(v, v + c, [](char *a, char *b) { return std::string(a) < b; }); int r = p.mix<long>(3, [](M m, long k) { return m.n + (int)k; });
 std::cout << m << f(2) << h->run(1) << twice(c) << 3_kb << r << (pick(c) != nullptr); auto u = std::make_unique<std::vector<int>>(3); auto s = std::make_shared<std::map<std::string, M>>(); return u->size() + s->size(); }
