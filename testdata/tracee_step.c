// Stores the flags again and again where a tracer steps, and checks them.
// Modes: "flags" ends with 1 when the trap flag shows; "handler" has a handler
// for SIGTRAP and prints, when standard input closes, how often it was called;
// "fault" executes a forbidden instruction of one byte after each byte that it
// reads, and prints "on" where it goes on behind it.
// "blocked" has a handler for SIGTRAP, blocks all signals, and ends with 3 if it has
// another action or mask when standard input closes.
// Prints its pid first.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int stop;
static volatile long traps, wrong;

static void *reader(void *a) {
	char c;
	while (read(0, &c, 1) > 0) {}
	stop = 1;
	return 0;
}

static void trap(int s, siginfo_t *i, void *u) {
	traps++;
	if (i->si_code != 2) // TRAP_TRACE
		wrong++;
}

__attribute__((noinline)) unsigned long flags(void) {
	unsigned long f;
	__asm__ volatile("site_flags: pushf\n nop\n pop %0" : "=r"(f) : : "memory");
	return f;
}

__attribute__((noinline)) unsigned flags16(void) {
	unsigned f = 0;
	__asm__ volatile("site_flags16: pushfw\n nop\n popw %w0" : "+r"(f) : : "memory");
	return f;
}

int main(int argc, char **argv) {
	pthread_t t;
	struct sigaction sa = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
	if (!strcmp(argv[1], "handler") || !strcmp(argv[1], "blocked"))
		sigaction(SIGTRAP, &sa, 0);
	if (!strcmp(argv[1], "fault")) {
		char c;
		printf("%d\n", getpid());
		fflush(stdout);
		while (read(0, &c, 1) > 0) {
			__asm__ volatile("hlt");
			puts("on");
			fflush(stdout);
		}
		return 0;
	}
	pthread_create(&t, 0, reader, 0);
	sigset_t all, mask;
	sigfillset(&all);
	if (!strcmp(argv[1], "blocked"))
		sigprocmask(SIG_BLOCK, &all, 0);
	printf("%d\n", getpid());
	fflush(stdout);
	while (!stop)
		if (((flags() | flags16()) & 0x100) && *argv[1] == 'f')
			return 1;
	sigaction(SIGTRAP, 0, &sa);
	sigprocmask(SIG_BLOCK, 0, &mask);
	if (!strcmp(argv[1], "blocked") && (sa.sa_sigaction != trap || !sigismember(&mask, SIGTRAP)))
		return 3;
	if (traps)
		printf("%ld traps", traps);
	return wrong ? 2 : 0;
}
