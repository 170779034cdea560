// Structures of which compilers differ in how they are passed: packed ones, and ones
// with members that aren't aligned.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct __attribute__((packed, aligned(4))) bits { _Bool m: 1; };
struct loose { int a: 3; char b[3]; };
struct __attribute__((packed)) tight { int a: 3; char b[3]; };
struct one { char a; } __attribute__((aligned(4)));
struct wide { int a; } __attribute__((aligned(32)));
typedef int __attribute__((aligned(1))) any;
typedef int __attribute__((aligned(16))) far;

struct __attribute__((packed)) s1 { uint32_t m0; int8_t m1: 8; struct bits m2; };
struct __attribute__((packed)) s2 { uint32_t m0; char m1; struct loose m2; };
struct __attribute__((packed)) s3 { uint32_t m0; char m1; struct tight m2; };
struct __attribute__((packed)) s4 { char m1; struct one m2; };
struct __attribute__((packed)) s5 { char m1; struct one m2[2]; };
struct s6 { char c; any m; };
struct s7 { char c; int m __attribute__((packed)); };
struct __attribute__((packed)) s8 { char c[4]; far m; };
struct __attribute__((packed, aligned(4))) s9 { double m0; int m1; struct wide m2; _Bool m3; };

#define FUNC(n) __attribute__((noinline)) int f##n(struct s##n a, int b) \
{ \
	printf("=e" #n " {\"b\":%d}\n", b); \
	__asm__ volatile("" ::"m"(a)); \
	return b; \
}
FUNC(1) FUNC(2) FUNC(3) FUNC(4) FUNC(5) FUNC(6) FUNC(7) FUNC(8)

// probe: p:e1 f1 $params
// probe: p:e2 f2 $params
// probe: p:e3 f3 $params
// probe: p:e4 f4 $params
// probe: p:e5 f5 $params
// probe: p:e6 f6 $params
// probe: p:e7 f7 $params
// probe: p:e8 f8 $params
// probe: p:e9 f9 m0=a.m0 m1=a.m1 m3=a.m3 b=b
__attribute__((noinline)) int f9(struct one x, struct s9 a, int b)
{
	printf("=e9 {\"m0\":%g,\"m1\":%d,\"m3\":%s,\"b\":%d}\n", a.m0, a.m1, a.m3 ? "true" : "false", b);
	return b + x.a;
}

#define CALL(n) { struct s##n a; memset(&a, n, sizeof a); sum += f##n(a, 10 + n); }

int main(void)
{
	int sum = 0;
	CALL(1) CALL(2) CALL(3) CALL(4) CALL(5) CALL(6) CALL(7) CALL(8)
	return f9((struct one){ 1 }, (struct s9){ 1.5, 7, { 3 }, 1 }, sum) == 0;
}
