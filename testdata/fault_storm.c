// A program that makes faults of its own all the time, and answers them: as runtimes
// do that check nothing before a load (null checks of JITs, guards of collectors).
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static char *page;
static volatile unsigned long faults;
static volatile int ending;

__attribute__((noinline)) unsigned long load(const char *at) {
	unsigned long v = 7;
	__asm__ volatile("movzbl (%1), %k0\n\tnop" : "+r"(v) : "r"(at) : "memory");
	return v;
}

__attribute__((noinline)) unsigned long work(unsigned long a) {
	__asm__ volatile("");
	return 3 * a + 1;
}

static void fault(int sig, siginfo_t *info, void *context) {
	ucontext_t *u = context;
	unsigned char *pc = (unsigned char *)u->uc_mcontext.gregs[REG_RIP];
	if (info->si_addr != page || pc < (unsigned char *)load || pc > (unsigned char *)load + 32) {
		static const char text[] = "a fault that is not the program's\n";
		(void)!write(1, text, sizeof text - 1);
		_exit(3);
	}
	__atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
	while (*pc != 0x90) // the nop
		pc++;
	u->uc_mcontext.gregs[REG_RIP] = (long)pc;
}

static void *storm(void *unused) {
	for (unsigned long i = 0; !ending; i++) {
		if (load(page) != 7 || work(i) != 3 * i + 1)
			_exit(4);
	}
	return unused;
}

int main(void) {
	page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, 0);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, storm, 0);
	puts("ready");
	fflush(stdout);
	getchar();
	ending = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	return faults > 0 ? 7 : 1;
}
