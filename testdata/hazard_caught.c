// A program that lives on by its handlers of faults. At the line "only" it sets rules that kill it for all system
// calls but read, write, exit_group and rt_sigreturn, and prints "set". At the line "load" it calls work, which
// reads where nothing is, at any other line work2, which divides by zero. It prints "caught N", how many faults its
// handler has led on. Prints "ready" first. Ends with status 7 when standard input closes.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int caught;
static volatile long nowhere = 0x123, zero;

__attribute__((noinline, noclone)) long work(long at) {
	long v = 5;
	__asm__ volatile("nop; nop; nop; nop; nop; mov (%1), %0; nop" : "+a"(v) : "c"(at) : "memory");
	return v;
}

__attribute__((noinline, noclone)) long work2(long by) {
	long v = 5;
	__asm__ volatile("nop; nop; nop; nop; nop; xor %%edx, %%edx; idiv %1; nop" : "+a"(v) : "c"(by) : "rdx", "memory");
	return v;
}

static void handler(int sig, siginfo_t *si, void *arg) {
	(void)sig, (void)si;
	((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP] += 3; // both instructions have three bytes
	caught++;
}

static int only(void) {
	static const int calls[] = {SYS_read, SYS_write, SYS_rt_sigreturn, SYS_exit_group};
	enum { N = sizeof calls / sizeof *calls };
	struct sock_filter f[N + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	for (int i = 0; i < N; i++) f[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ, calls[i], N - i, 0);
	f[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET, SECCOMP_RET_KILL_PROCESS);
	f[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW);
	struct sock_fprog p = {N + 3, f};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

int main(void) {
	char line[64];
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaddset(&sa.sa_mask, SIGUSR1);
	sigaction(SIGSEGV, &sa, 0);
	sigaction(SIGFPE, &sa, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "only\n")) {
			if (only()) return 3;
			printf("set\n");
		} else {
			if (!strcmp(line, "load\n")) work(nowhere);
			else work2(zero);
			printf("caught %d\n", caught);
		}
		fflush(stdout);
	}
	_exit(7);
}
