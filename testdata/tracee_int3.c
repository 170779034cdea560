// It executes an int3 of its own for each '!' that it reads, and prints "trapped", if
// its handler was called with the registers of the trap, or "went on", if it was not
// called and rax is the number that a tracer gives it, or "half" for anything else.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int traps, wrong;
static void *volatile stack;

static void on_trap(int sig, siginfo_t *si, void *arg)
{
	greg_t *r = ((ucontext_t *)arg)->uc_mcontext.gregs;

	traps++;
	wrong |= si->si_code != SI_KERNEL || r[REG_RAX] != 5 || (void *)r[REG_RSP] != stack;
}

int main(void)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	char c;

	sigaction(SIGTRAP, &sa, NULL);
	printf("%d\n", getpid());
	fflush(stdout);
	while (read(0, &c, 1) == 1 && c == '!') {
		long rax = 5;

		traps = wrong = 0;
		asm volatile("mov %%rsp, %1; int3; nop" : "+a"(rax), "=m"(stack));
		if (traps == 1 && !wrong && rax == 5) puts("trapped");
		else if (!traps && rax == 7) puts("went on");
		else printf("half: %d traps, %ld\n", traps, rax);
		fflush(stdout);
	}
	return 0;
}
