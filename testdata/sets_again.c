// Sets another handler for SIGTRAP whenever it has read a line, one of two in turn, meets
// an int3 of its own, and prints "set" and how many of its handlers' calls were wrong.
// Ends with 7 at the end of its input.
#include <signal.h>
#include <stdio.h>

static volatile int called, wrong;

static void even(int sig) { called = sig == SIGTRAP ? 2 : -1; }
static void odd(int sig) { called = sig == SIGTRAP ? 1 : -1; }

__attribute__((noinline)) long work(long a) {
	__asm__ volatile("nop");
	return a * 3 + 1;
}

int main(void) {
	char line[64];
	puts("ready");
	fflush(stdout);
	for (int i = 0; fgets(line, sizeof line, stdin); i++) {
		signal(SIGTRAP, i % 2 ? odd : even);
		called = 0;
		__asm__ volatile("int3");
		wrong += called != 2 - i % 2 || work(i) != 3 * i + 1;
		printf("set %d\n", wrong);
		fflush(stdout);
	}
	return 7;
}
