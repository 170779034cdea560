// Names of C++ that a probe place may be written with.
#include <cstddef>
#include <new>
#include <string>

namespace ns {
int f(int x) { return x + 1; }
int f(char const *s, unsigned long n) { return s[n]; }
int alone(int x, char const *) { return x; }
namespace inner {
struct Shape {
  int side;
  Shape(int s);
  ~Shape();
  int area() const;
  int operator*(int k) const;
  int operator[](int k) const;
  int operator()(int a, int b);
  explicit operator bool() const;
  static Shape *make(std::string const &name);
  void *operator new(size_t n);
};
Shape::Shape(int s) : side(s) {}
Shape::~Shape() { side = 0; }
int Shape::area() const { return side * side; }
int Shape::operator*(int k) const { return side * k; }
int Shape::operator[](int k) const { return side + k; }
int Shape::operator()(int a, int b) { return side + a * b; }
Shape::operator bool() const { return side != 0; }
Shape *Shape::make(std::string const &name) { return new Shape((int)name.size()); }
void *Shape::operator new(size_t n) { return ::operator new(n); }
}  // namespace inner
template <typename T>
T twice(T x) {
  return x + x;
}
template int twice<int>(int);
template double twice<double>(double);
}  // namespace ns

namespace {
__attribute__((noinline, used)) int hidden_away(int x) { return x ^ 5; }
}  // namespace

int operator+(ns::inner::Shape const &a, ns::inner::Shape const &b) { return a.side + b.side; }

std::string tagged(int n) { return std::string((size_t)n, 'x'); }

int main(int argc, char **argv) {
  ns::inner::Shape s(argc);
  auto *p = ns::inner::Shape::make(argv[0]);
  int r = ns::f(argc) + ns::f(argv[0], 0) + s.area() + s * 2 + s[1] + s(1, 2) + hidden_away(argc) + (s + *p) +
          (int)tagged(argc).size() + ns::alone(1, "");
  delete p;
  return r == -1;
}
