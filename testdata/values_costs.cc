// Functions that values_costs calls in short turns, and what a call of each costs, in ns:
// the least of the turns.
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

template <class F> static void turns(const char *name, F call)
{
	double least = 1e9;
	volatile long sum = 0;
	for (int turn = 0; turn < 60; turn++) {
		auto from = std::chrono::steady_clock::now();
		for (int i = 0; i < 2000; i++)
			sum = sum + call(i);
		std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
		if (took.count() / 2000 < least)
			least = took.count() / 2000;
		usleep(20000); // the records are read
	}
	printf("%s %.1f\n", name, least);
}

int main()
{
	const std::vector<int> v = {0x41414141, 2, 3, 4, 5, 6, 7, 8};
	char s[8 * sizeof(int) + 1];
	memset(s, 'A', sizeof s - 1);
	s[sizeof s - 1] = 0;
	turns("plain", [](int i) { return plain(i, i); });
	turns("named", [](int i) { return named(i, i); });
	turns("text", [&](int) { return text(s); });
	turns("ints", [&](int) { return ints(v); });
	return 0;
}
