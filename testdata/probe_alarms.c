// A program whose threads have many signals. Arguments: signal, signals a second for each thread, threads, signals
// in each, and "jump" if handlers sometimes leave by siglongjmp. After a line on stdin each thread works until it has had
// its signals. Then the program prints the calls of leaf, the signals that it got, and how many things were wrong: results, or what a handler saw.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static struct { unsigned long from, to; } code[64];
static int codes, sig, rate, jump, most;
static _Atomic long calls, signals, wrong;
static __thread int self;
static __thread sigjmp_buf out;
static __thread volatile int ready, own;

APART long leaf(long a) { return a * 3 + 1; }
APART long inner(long a) { return leaf(a) ^ 5; }
APART long tail(long a) { return a & 1 ? leaf(a) : inner(a + 2); }
APART long work(long a) { return inner(a) + tail(a); }

static long expected(long a)
{
	long in = (a * 3 + 1) ^ 5;
	return in + (a & 1 ? a * 3 + 1 : ((a + 2) * 3 + 1) ^ 5);
}

static void on_alarm(int s, siginfo_t *si, void *u)
{
	int was = errno;
	unsigned long ip = ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP];
	int in = 0;
	for (int i = 0; i < codes; i++)
		in |= ip >= code[i].from && ip < code[i].to;
	if (!in || s != sig || si->si_signo != sig || si->si_code != SI_TIMER || si->si_value.sival_int != self)
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&signals, 1);
	own++;
	errno = was;
	if (jump && ready && own % 8 == 0)
		siglongjmp(out, 1);
}

static void *run(void *arg)
{
	self = (int)(long)arg;
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = sig, .sigev_value.sival_int = self};
	ev._sigev_un._tid = syscall(SYS_gettid);
	timer_t timer;
	struct itimerspec every = {{0, 1000000000 / rate}, {0, 1000000000 / rate}};
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &every, 0))
		abort();
	volatile long i = 0;
	sigsetjmp(out, 1);
	ready = 1;
	while (own < most) {
		long a = i++ + self;
		if (work(a) != expected(a))
			atomic_fetch_add(&wrong, 1);
	}
	ready = 0;
	timer_delete(timer);
	atomic_fetch_add(&calls, 2 * i);
	return 0;
}

int main(int argc, char **argv)
{
	char line[512], perms[8];
	sig = atoi(argv[1]), rate = atoi(argv[2]), most = atoi(argv[4]);
	int threads = atoi(argv[3]);
	jump = argc > 5 && !strcmp(argv[5], "jump");
	FILE *maps = fopen("/proc/self/maps", "r");
	while (codes < 64 && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %7s", &code[codes].from, &code[codes].to, perms) == 3 && strchr(perms, 'x'))
			codes++;
	fclose(maps);
	struct sigaction sa = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(sig, &sa, 0);
	puts("ready");
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	pthread_t t[16];
	for (long i = 0; i < threads; i++)
		pthread_create(&t[i], 0, run, (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], 0);
	printf("done %ld calls %ld signals %ld wrong\n", calls, signals, wrong);
	fflush(stdout);
	fgets(line, sizeof line, stdin);
	return 7;
}
