// A program that calls work() once for each line of its standard input, and
// prints the count. At the line "main" its first thread, at the line "thread"
// another, sets seccomp rules that kill the process for prctl, gettid and
// readlink; from then on that thread does the work. At the line "only" all threads get
// rules that kill the process for all but what this program itself calls. Prints "ready" first, and
// "set" when the rules are there. With an argument so many more threads call storm() all the time, with
// an address that can be read. Ends with status 7 when standard input closes.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long count;
static sem_t go, done;

__attribute__((noinline, noclone)) long work(long a) { __asm__ volatile(""); return a * 3 + 1; }

static int rules(void) {
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_prctl, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_gettid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ, SYS_readlink, 0, 1),
		BPF_STMT(BPF_RET, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {6, f};
	// Root needs no PR_SET_NO_NEW_PRIVS, which would show before the rules do.
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0) return 0;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static int only(void) {
	static const int calls[] = {SYS_read, SYS_write, SYS_futex, SYS_exit_group};
	enum { N = sizeof calls / sizeof *calls };
	struct sock_filter f[N + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	for (int i = 0; i < N; i++) f[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ, calls[i], N - i, 0);
	f[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET, SECCOMP_RET_KILL_PROCESS);
	f[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW);
	struct sock_fprog p = {N + 3, f};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &p);
}

static void *other(void *a) {
	sem_wait(&go);
	if (rules()) _exit(3);
	for (;;) {
		sem_post(&done);
		sem_wait(&go);
		count += work(count) != count * 3 + 1 ? 1000000 : 1;
	}
}

__attribute__((noinline, noclone)) long storm(char *a) { __asm__ volatile("" : "+r"(a) : : "memory"); return a[0] + 1; }

static void *storms(void *a) {
	char *text = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); // who reads there asks each time
	strcpy(text, "a text");
	for (;;) storm(text);
	return a;
}

int main(int argc, char **argv) {
	char line[64];
	int threaded = 0;
	pthread_t t;
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	pthread_create(&t, 0, other, 0);
	for (int i = argc > 1 ? atoi(argv[1]) : 0; i > 0; i--) pthread_create(&t, 0, storms, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "main\n")) {
			if (rules()) return 3;
			printf("set\n");
		} else if (!strcmp(line, "only\n")) {
			if (only()) return 3;
			printf("set\n");
		} else if (!strcmp(line, "thread\n")) {
			threaded = 1;
			sem_post(&go);
			sem_wait(&done);
			printf("set\n");
		} else if (threaded) {
			sem_post(&go);
			sem_wait(&done);
			printf("%ld\n", count);
		} else {
			count += work(count) != count * 3 + 1 ? 1000000 : 1;
			printf("%ld\n", count);
		}
		fflush(stdout);
	}
	_exit(7);
}
