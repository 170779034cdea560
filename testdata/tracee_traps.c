// A program with traps of its own, whose threads block signals for a moment, as
// pthread_create does. Prints its pid, then "ready"; works from the first line of
// its standard input on until that closes. The status says what was wrong:
//
//	3  a trap of its own was not seen by its handler, or with another siginfo
//	4  SIGTRAP's action was not what it had set
//	5  a thread's mask was not what it had set
//	6  a SIGTRAP that was sent to it was not seen
//
// Arguments: how many threads, and which signals they block: "all", "trap"
// (SIGTRAP alone), "some" (a few, and SIGTRAP), "open" (a few, not SIGTRAP).
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern char own_trap[];
static __thread volatile long trapped, sent;
static volatile int stop, count, threads, ready;
static sigset_t set;

__attribute__((noinline)) void site(void) { __asm__ volatile("site_int3: nop; nop"); count++; }
__attribute__((noinline)) static void own(void) { __asm__ volatile("own_trap: int3\n\tnop"); }

static void on_trap(int sig, siginfo_t *si, void *ctx) {
	greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;
	if (si->si_code == SI_TKILL) sent++;
	else if (si->si_code == SI_KERNEL && g[REG_RIP] == (greg_t)own_trap + 1) trapped++;
	else _exit(3);
}

// As the kernel has it: what the C library keeps to itself included.
static unsigned long mask(void) {
	unsigned long m = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, 0, &m, 8);
	return m;
}

static void *work(void *a) {
	unsigned long want, none = 0, m;
	memcpy(&want, &set, sizeof want);
	for (long i = 1; !stop; i++) {
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &want, 0, 8);
		unsigned long before = mask();
		site();
		if ((m = mask()) != before) { fprintf(stderr, "mask %lx, was %lx\n", m, before); _exit(5); }
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
		own();
		if (trapped != i) _exit(3);
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGTRAP);
		if (sent != i) _exit(6);
		if (threads == 1) {
			struct sigaction sa;
			sigaction(SIGTRAP, 0, &sa);
			if (sa.sa_sigaction != on_trap || (sa.sa_flags & ~0x04000000) != (SA_SIGINFO | SA_RESTART | SA_NODEFER) ||
			    !sigismember(&sa.sa_mask, SIGUSR2) || sigismember(&sa.sa_mask, SIGUSR1)) _exit(4);
		}
	}
	return a;
}

int main(int argc, char **argv) {
	char c;
	threads = atoi(argv[1]);
	struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
	sigaddset(&sa.sa_mask, SIGUSR2);
	sigaction(SIGTRAP, &sa, 0);
	if (!strcmp(argv[2], "all")) memset(&set, 0xff, sizeof set);
	else if (strcmp(argv[2], "trap")) { sigaddset(&set, SIGUSR1); sigaddset(&set, SIGHUP); }
	if (strcmp(argv[2], "open")) sigaddset(&set, SIGTRAP);
	printf("%d\nready\n", getpid());
	fflush(stdout);
	if (read(0, &c, 1) != 1) return 9;
	pthread_t t[64];
	for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, work, 0);
	while (read(0, &c, 1) > 0) {}
	stop = 1;
	for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
	return 0;
}
