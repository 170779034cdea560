// Structures in frames that are stored to in ways which are not seen as stores to them.
#include <stdlib.h>

#define NI __attribute__((noinline, noclone))

struct s4 { int a, b, c, d; };
struct pair { long a, b; };
volatile int sink;

NI void fill(struct s4 *p) { p->a = 1; p->b = 2; p->c = 3; p->d = 4; __asm__ volatile("" ::: "memory"); }
NI void add(struct s4 *p) { p->b += 20; p->d += 40; __asm__ volatile("" ::: "memory"); }

// The address is in a register that saves it over calls.
NI int kept(int n) {
	struct s4 s;
	int t = 0;
	for (int i = 0; i < n; i++) {
		fill(&s);
		add(&s);
		t += s.b;
		sink = t; // kept
	}
	return t;
}

// Members by index.
NI int by_index(int n, int v) {
	volatile struct s4 s;
	volatile int *p = (volatile int *)&s;
	p[n & 3] = v;
	p[(n + 1) & 3] = v + 1;
	p[(n + 2) & 3] = v + 2;
	p[(n + 3) & 3] = v + 3;
	sink = p[v & 3]; // by_index
	return sink;
}

#ifndef __clang__
// A nested function gets the address of what is around the structure.
NI int nested(int n) {
	int k = n;
	volatile struct pair s;
	NI void in(int x) { k += x; s.a = x; s.b = x + 1; }
	in(n);
	in(n + 1);
	sink = k; // nested
	return s.a + k;
}
#endif

// The processor's state.
struct words {
	long q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15;
	long q16, q17, q18, q19, q20, q21, q22, q23, q24, q25, q26, q27, q28, q29, q30, q31;
	long q32, q33, q34, q35, q36, q37, q38, q39, q40, q41, q42, q43, q44, q45, q46, q47;
	long q48, q49, q50, q51, q52, q53, q54, q55, q56, q57, q58, q59, q60, q61, q62, q63;
};
NI int state(int n) {
	struct words s __attribute__((aligned(16)));
	__asm__ volatile("movq %1, %%xmm0\n fxsave %0" : "=m"(s) : "r"((long)n) : "xmm0");
	sink = n; // state
	__asm__ volatile("" ::"m"(s));
	return sink;
}

// Bits by their number.
struct bits { long a, b; };
NI int bits(long n) {
	struct bits s = {0, 0};
	__asm__ volatile("btsq %1, %0" : "+m"(s.a) : "r"(n) : "memory");
	sink = n; // bits
	__asm__ volatile("" ::"m"(s));
	return sink;
}

// From an address far before the array.
struct array { int a[8]; int n; };
NI int far_before(int from, int to) {
	volatile struct array s;
	for (int i = from; i < to; i++) {
		s.a[i - 1000] = i;
		__asm__ volatile("");
	}
	s.n = to;
	sink = s.n; // far_before
	return s.a[from & 7];
}

// A text that ends before its array.
struct named { int n; char name[16]; };
NI int text(int n) {
	volatile struct named s;
	s.n = n;
	s.name[0] = 'a';
	s.name[1] = 'b';
	s.name[2] = 0;
	sink = s.n; // text
	return s.name[0];
}

// The address is stored along with another one, from a register of vectors.
struct two { struct s4 *p; long *q; } both;
NI void by_two(struct two *t) { fill(t->p); }
NI int vector(long *q) {
	struct s4 s;
	both.p = &s;
	both.q = q;
	by_two(&both);
	sink = s.b; // vector
	return s.a + s.d;
}

// In the place of another block's array, which is indexed from the frame's register.
NI int shared(int n, int v) {
	int t = 0;
	if (n > 3) {
		volatile int array[8];
		array[n & 7] = v;
		array[(n + 1) & 7] = v;
		t += array[v & 7];
	} else {
		struct s4 s;
		fill(&s);
		sink = s.b; // shared
		t += s.a + s.d;
	}
	return t;
}

// In the place of a variable of the block around.
NI int around(int n) {
	fill(&(struct s4){0});
	sink = n;
	{
		volatile struct s4 s;
		s.a = n;
		s.b = n + 1;
		s.c = n + 2;
		s.d = n + 3;
		sink = s.a + s.d;
		fill((struct s4 *)both.p);
		sink = s.b; // around
	}
	struct s4 outer;
	fill(&outer);
	sink = outer.b;
	return outer.a + outer.d;
}

// In the part of the function that is seldom run.
NI int seldom(int n) {
	volatile struct s4 s;
	s.a = n;
	s.b = 0;
	if (__builtin_expect(n > 2, 0)) {
		s.c = n + 2;
		s.d = n + 3;
		sink = s.c + s.d;
		sink = s.b; // seldom
		exit(s.a - n);
	}
	return s.a;
}

int main(int argc, char **argv) {
	long q = 5;
	struct s4 other;
	(void)argv;
	kept(2);
	by_index(argc, 40);
#ifndef __clang__
	nested(argc);
#endif
	state(argc + 76);
	bits(argc + 64);
	far_before(999 + argc, 1008);
	text(3);
	vector(&q);
	shared(argc, 9);
	both.p = &other;
	around(argc);
	seldom(argc + 2);
}
