// Values that few functions have: numbers of 16 bytes, vectors, virtual base classes,
// arrays of variable length, in registers and in memory. See values_types.c.
#include <cstdint>
#include <cstdio>
#include <string>

typedef float four __attribute__((vector_size(16)));
typedef int two __attribute__((vector_size(8)));
struct held { long double x; };
struct vectored { four v; };
struct base { int v; virtual ~base() = default; };
struct left : virtual base { int l; };
struct right : virtual base { int r; };
struct both : left, right { int b; };
struct last : both { int z; };

#define NOINLINE __attribute__((noinline))
#define OUT(...) (printf(__VA_ARGS__), fflush(stdout))

// probe: p:wide wide x n
// probe: r:wide_result wide x=$retval
NOINLINE long double wide(long double x, int n) { OUT("=wide {\"x\":%Lg,\"n\":%d}\n=wide_result {\"x\":%Lg}\n", x, n, x * n); return x * n; }

// probe: r:held_result make_held x=$retval y=$retval.x
NOINLINE held make_held(int n) { held h = {n / 4.0L}; OUT("=held_result {\"x\":{\"x\":%Lg},\"y\":%Lg}\n", h.x, h.x); return h; }

// probe: r:turned turn x=$retval
NOINLINE _Complex long double turn(long double re, int im) { _Complex long double c; __real__ c = im; __imag__ c = re; OUT("=turned {\"x\":{\"re\":%d,\"im\":%Lg}}\n", im, re); return c; }

// probe: p:quad quad x y=y n
// probe: r:quad_result quad x=$retval
NOINLINE __float128 quad(__float128 x, double y, int n) { OUT("=quad {\"x\":%g,\"y\":%g,\"n\":%d}\n=quad_result {\"x\":%g}\n", (double)x, y, n, (double)(x * n)); return x * n; }

// probe: p:vectors vectors a b c d n
// probe: r:vectors_result vectors x=$retval
NOINLINE four vectors(four a, double b, vectored c, two d, int n)
{
	four r = a + c.v * (float)n;
	OUT("=vectors {\"a\":[%g,%g,%g,%g],\"b\":%g,\"c\":{\"v\":[%g,%g,%g,%g]},\"d\":[%d,%d],\"n\":%d}\n=vectors_result {\"x\":[%g,%g,%g,%g]}\n",
	    a[0], a[1], a[2], a[3], b, c.v[0], c.v[1], c.v[2], c.v[3], d[0], d[1], n, r[0], r[1], r[2], r[3]);
	return r;
}

// probe: p:virtuals virtuals v=x->v l=x->l y=y.v z=z.v zz=z.z
NOINLINE int virtuals(const left *x, const both &y, last *z) { OUT("=virtuals {\"v\":%d,\"l\":%d,\"y\":%d,\"z\":%d,\"zz\":%d}\n", x->v, x->l, y.v, z->v, z->z); return x->v; }

// probe: p:sized values_rare.cc:SIZED a=a b=a[2] n c=c
NOINLINE int sized(int n, short m)
{
	short a[n];
	struct { int8_t x; int y; } c[m];
	for (int i = 0; i < n; i++)
		a[i] = i * i - 1;
	for (int i = 0; i < m; i++)
		c[i].x = -i, c[i].y = i;
	asm volatile("" ::"r"(a), "r"(c) : "memory");
	OUT("=sized {\"a\":[-1,0,3,8,15],\"b\":3,\"n\":%d,\"c\":[{\"x\":0,\"y\":0},{\"x\":-1,\"y\":1}]}\n", n); // SIZED
	asm volatile("" ::"r"(a), "r"(c) : "memory");
	return a[n - 1] + c[m - 1].y;
}

int main()
{
	both b;
	last z;
	b.v = 1, b.l = 2, b.r = 3, b.b = 4;
	z.v = 5, z.l = 6, z.r = 7, z.b = 8, z.z = 9;
	int n = (int)wide(1.25L, 3) + (int)make_held(7).x + (int)__real__ turn(2.5L, 6) + (int)quad(1.5, 2.5, 3);
	n += (int)vectors((four){1, 2, 3, 4}, 5.5, {(four){6, 7, 8, 9}}, (two){-10, 11}, 12)[2];
	n += virtuals(&b, b, &z) + sized(5, 2);
	return n == 0;
}
