// Variables of which a library and the program each have one, and use the program's: what a
// program copies (R_X86_64_COPY), and what C++ has in each file (static inline).
#include "linked.h"
#include <cstdio>
int elsewhere(int x);
__attribute__((noinline)) int Shared::of(int x) {
	counter += x;
	copied += x;
	numbers[2] += x;
	return copied + own;
}
int main() {
	Shared s;
	for (int i = 1; i < 4; i++) {
		std::printf("use %d %d %ld %d\n", copied, Shared::counter, Shared::inner().level, numbers[2]);
		use(i);
		std::printf("of %d %d %ld %d\n", copied, Shared::counter, Shared::inner().level, numbers[2]);
		s.of(i);
		elsewhere(i);
	}
}
