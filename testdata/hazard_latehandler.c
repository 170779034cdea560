// A program that faults at nothing itself: at each line "call" of its standard input it
// calls work() with addresses at which something, nothing, no longer anything, or half of
// what is read can be read, in its first thread and in one that blocks all signals, and
// prints "called N". At "handler" it sets handlers of SIGSEGV and SIGBUS, without
// the C library, which end it with status 9. It prints "ready" first, and ends with status 7
// when standard input closes.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static char *list[8];
static long calls;

__attribute__((noinline, noclone)) void work(char *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static void all(void) {
	for (int i = 0; i < 8; i++) {
		work(list[i]);
		calls++;
	}
}

static void *blocked(void *a) {
	sigset_t set;
	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	all();
	return a;
}

static void faulted(int sig) {
	(void)sig;
	_exit(9);
}

__asm__("restorer: mov $15, %eax\n syscall");
void restorer(void);

static int handle(int sig) {
	struct { void (*handler)(int); unsigned long flags; void (*restorer)(void); uint64_t mask; } act = {faulted, 0x04000000, restorer, 0};
	return syscall(SYS_rt_sigaction, sig, &act, NULL, 8);
}

int main(void) {
	char *map = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *file = tmpfile();
	if (map == MAP_FAILED || file == NULL || ftruncate(fileno(file), PAGE) != 0) return 1;
	char *past = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
	if (past == MAP_FAILED) return 2;
	memset(map, 'a', PAGE);
	munmap(map + PAGE, PAGE);
	mprotect(map + 3 * PAGE, PAGE, PROT_NONE);
	*(char **)(map + 2 * PAGE + 8) = map + PAGE;
	strcpy(map + 4 * PAGE, "whole");
	*(char **)(map + 4 * PAGE + 8) = map;
	char *what[8] = {map + PAGE + 100, map + PAGE - 5, map + 2 * PAGE, map + 3 * PAGE, past + PAGE, past + PAGE - 3, map + 4 * PAGE, (char *)0x7ff123456789};
	memcpy(list, what, sizeof list);
	printf("ready\n");
	fflush(stdout);
	for (char line[64]; fgets(line, sizeof line, stdin);) {
		pthread_t t;
		if (!strcmp(line, "handler\n")) {
			if (handle(SIGSEGV) || handle(SIGBUS)) return 3;
			printf("set\n");
		} else {
			all();
			if (pthread_create(&t, NULL, blocked, NULL) || pthread_join(t, NULL)) return 4;
			printf("called %ld\n", calls);
		}
		fflush(stdout);
	}
	return 7;
}
