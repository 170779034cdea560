// Bitfields as wide as their types, of which LLVM tells neither that they are bitfields nor at
// which bit they begin. In one and two they are shifted, and in three and four nothing is.
#include <stdint.h>
enum __attribute__((packed)) e { A = -100, B = 7 };
struct __attribute__((packed)) one { uint8_t a; uint8_t x : 4; int : 9; enum e y : 8; enum e z : 8; uint8_t w; };
struct __attribute__((packed)) two { uint8_t a; uint16_t odd; uint8_t x : 4; int : 9; enum e y : 8; enum e z : 8; uint8_t w; };
struct three { uint8_t a; uint8_t x : 4; enum e y; uint8_t z; uint32_t w; uint8_t f : 3; uint8_t g; };
struct __attribute__((packed)) four { uint8_t a; uint16_t odd; uint8_t x : 8; enum e y : 8; enum e z; uint8_t w; };
__attribute__((noinline)) int f(struct one *p, struct two *q, struct three *r, struct four *s) {
	return p->y + q->z + r->w + s->w;
}
int main(void) {
	struct one p = {1, 2, B, A, 3};
	struct two q = {1, 2, 3, B, A, 4};
	struct three r = {1, 2, B, 9, 77, 5, 6};
	struct four s = {1, 2, 3, B, A, 8};
	return f(&p, &q, &r, &s) == 0;
}
