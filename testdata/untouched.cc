// Structures that are parts of another one, whose address alone is taken.
struct s4 { int a, b, c, d; };
struct two { s4 first, second; };
volatile int sink;

__attribute__((noinline)) void fill(two *p, int n) {
	p->first = {n, n + 1, n + 2, n + 3};
	p->second = {n + 10, n + 11, n + 12, n + 13};
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) two make(int n) {
	two p;
	fill(&p, n);
	return p;
}

__attribute__((noinline)) int bind(int n) {
	auto [x, y] = make(n);
	sink = y.b; // bind
	return x.a + y.c;
}

int main(int argc, char **) { return bind(argc) == 0; }
