// Functions that values_costs calls in turns, one after the other, and what a call of each
// costs, in ns: the least of the turns.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <vector>

extern "C" {
__attribute__((noinline)) long plain(long a, long b) { __asm__ volatile("" ::: "memory"); return a + b; }
__attribute__((noinline)) long named(long a, long b) { __asm__ volatile("" ::: "memory"); return a + b; }
__attribute__((noinline)) long text(const char *s) { __asm__ volatile("" ::: "memory"); return s[0]; }
__attribute__((noinline)) long ints(const std::vector<int> &v) { __asm__ volatile("" ::: "memory"); return v[0]; }
}

// cost is what a call takes in one turn of 2000, in ns.
template <class F> static double cost(F call)
{
	volatile long sum = 0;
	auto from = std::chrono::steady_clock::now();
	for (int i = 0; i < 2000; i++)
		sum = sum + call(i);
	std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
	usleep(10000); // the records are read
	return took.count() / 2000;
}

int main()
{
	const std::vector<int> v = {0x41414141, 2, 3, 4, 5, 6, 7, 8};
	char s[8 * sizeof(int) + 1];
	memset(s, 'A', sizeof s - 1);
	s[sizeof s - 1] = 0;
	const char *names[] = {"plain", "named", "text", "ints"};
	double least[] = {1e9, 1e9, 1e9, 1e9};
	for (int turn = 0; turn < 100; turn++) { // the first ones use new memory
		const double now[] = {
			cost([](int i) { return plain(i, i); }),
			cost([](int i) { return named(i, i); }),
			cost([&](int) { return text(s); }),
			cost([&](int) { return ints(v); }),
		};
		for (int i = 0; i < 4; i++)
			if (now[i] < least[i])
				least[i] = now[i];
	}
	for (int i = 0; i < 4; i++)
		printf("%s %.1f\n", names[i], least[i]);
	return 0;
}
