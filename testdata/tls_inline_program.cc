#include <cstdio>
#include <thread>

#include "tls_inline.h"

extern "C" int use(int by);

__attribute__((noinline)) int end() {
	__asm__ volatile("" ::: "memory");
	return 0;
}

static void work(int by) {
	for (int i = 0; i < 2; i++) {
		std::printf("use %d %ld\n", Each::counter, shared);
		std::fflush(stdout);
		use(by);
		Each::counter += 100;
		shared += 1000;
	}
}

int main() {
	work(1);
	std::thread(work, 2).join();
	return end();
}
