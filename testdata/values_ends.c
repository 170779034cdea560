// Functions with arrays in their frames, whose ends give the frames up: after the last
// call of sum each value is in its array, for as long as there is a frame.
#include <stdio.h>
#include <stdlib.h>
#define KEEP __attribute__((noinline, noclone))
struct many { long at[40]; int n; };
KEEP void fill(long *p, int n, long by) { for (int i = 0; i < n; i++) p[i] = by + i; }
KEEP long sum(const long *p, int n) { long s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }
KEEP long large(long by) {
	long big[40];
	struct many other;
	fill(big, 40, by);
	fill(other.at, 40, 1000);
	other.n = (int)sum(big, 40);
	return sum(other.at, other.n & 31);
}
KEEP long small(long by) {
	long few[4];
	fill(few, 4, by);
	return sum(few, 4) * by;
}
KEEP long sized(long by, int n) {
	long big[40];
	long many[n];
	fill(big, 40, by);
	fill(many, n, by);
	return sum(big, 40) + sum(many, n);
}
int main(void) {
	long n = large(100) + small(100) + sized(100, 30);
	printf("%ld\n", n);
	return 0;
}
