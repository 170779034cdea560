// Functions that GCC makes one piece of code of, when it sees all of the program.
#include <stdio.h>

struct a { int x, y; };
struct b { unsigned x, y; };

__attribute__((noinline)) int geta(struct a *p) { __asm__ volatile("" ::"r"(p) : "memory"); return 1; }
__attribute__((noinline)) int getb(struct b *q) { __asm__ volatile("" ::"r"(q) : "memory"); return 1; }
__attribute__((noinline)) int same(struct b *q) { __asm__ volatile("" ::"r"(q) : "memory"); return q->y + 2; }
int again(struct b *q) __attribute__((alias("same")));

int main(void)
{
	struct a a[2] = {{1, 2}, {3, 4}};
	struct b b[2] = {{1, 2}, {3, 4}};
	for (int i = 0; i < 2; i++)
		printf("%d\n", geta(a + i) + getb(b + i) + same(b + i) + again(b + i));
	return 0;
}
