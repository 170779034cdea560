// Stores the flags again and again where a tracer steps, and checks them.
// Modes: "flags" ends with 1 when the trap flag shows; "handler" has a handler
// for SIGTRAP and prints, when standard input closes, how often it was called;
// "fault" executes a forbidden instruction of one byte after each byte that it
// reads, and prints "on" where it goes on behind it.
// "blocked" has a handler for SIGTRAP, blocks all signals, and ends with 3 if it has
// another action or mask when standard input closes.
// "masks" has the handler, sets and asks for masks all the time, within a handler and
// outside, and ends with 2 if one isn't what it set.
// "returns" is in a handler of SIGTRAP when it prints its pid, returns from there when it
// has read a byte, and ends with 2 if SIGTRAP is blocked when standard input closes.
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

static void is(int trap) {
	sigset_t m;
	sigprocmask(SIG_BLOCK, 0, &m);
	if (sigismember(&m, SIGTRAP) != trap)
		wrong++;
}

static void waits(int s) {
	char c;
	printf("%d\n", getpid());
	fflush(stdout);
	(void)!read(0, &c, 1);
}

static void usr1(int s) { is(1); }

static void masks(void) {
	sigset_t all, none, was;
	sigfillset(&all);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &all, &was);
	if (sigismember(&was, SIGTRAP))
		wrong++;
	is(1);
	sigdelset(&all, SIGUSR1);
	sigprocmask(SIG_SETMASK, &all, 0);
	raise(SIGUSR1);
	is(1);
	sigprocmask(SIG_UNBLOCK, &all, &was);
	if (!sigismember(&was, SIGTRAP))
		wrong++;
	is(0);
	raise(SIGUSR1);
	is(0);
	sigprocmask(SIG_SETMASK, &none, 0);
}

int main(int argc, char **argv) {
	pthread_t t;
	struct sigaction sa = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
	if (!strcmp(argv[1], "handler") || !strcmp(argv[1], "blocked") || !strcmp(argv[1], "masks"))
		sigaction(SIGTRAP, &sa, 0);
	struct sigaction on = {.sa_handler = usr1};
	sigfillset(&on.sa_mask);
	sigaction(SIGUSR1, &on, 0);
	if (!strcmp(argv[1], "returns")) {
		char c;
		on.sa_handler = waits;
		sigemptyset(&on.sa_mask);
		sigaction(SIGTRAP, &on, 0);
		raise(SIGTRAP);
		puts("returned");
		fflush(stdout);
		(void)!read(0, &c, 1);
		is(0);
		return wrong ? 2 : 0;
	}
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
	while (!stop && *argv[1] == 'm')
		masks();
	while (!stop)
		if (((flags() | flags16()) & 0x100) && *argv[1] == 'f')
			return 1;
	sigaction(SIGTRAP, 0, &sa);
	sigprocmask(SIG_BLOCK, 0, &mask);
	if (*argv[1] == 'm' && sa.sa_sigaction != trap)
		return 3;
	if (!strcmp(argv[1], "blocked") && (sa.sa_sigaction != trap || !sigismember(&mask, SIGTRAP)))
		return 3;
	if (traps)
		printf("%ld traps", traps);
	return wrong ? 2 : 0;
}
