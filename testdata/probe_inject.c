/* probe_inject THREADS: calls work without end in so many threads, which a timer's signals
 * interrupt, until it reads a line; then it prints how many results were wrong, and how
 * many of these came with ENOSPC. It ends with 7 at the next line. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static long calls, wrong, failed;
static volatile int stop;
static volatile long handled;

__attribute__((noinline, noclone)) long work(long n)
{
	__asm__ volatile("" ::: "memory");
	return 2 * n;
}

static void on_timer(int sig)
{
	handled += sig > 0;
}

static void *loop(void *arg)
{
	long c = 0, w = 0, f = 0;
	while (!stop) {
		for (volatile int k = 0; k < 300; k++)
			;
		errno = 0;
		c++;
		if (work(c) != 2 * c) {
			w++;
			f += errno == ENOSPC;
		}
	}
	__atomic_add_fetch(&calls, c, __ATOMIC_RELAXED);
	__atomic_add_fetch(&wrong, w, __ATOMIC_RELAXED);
	__atomic_add_fetch(&failed, f, __ATOMIC_RELAXED);
	return arg;
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 2000}, {0, 2000}};
	pthread_t t[16];
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	sigaction(SIGPROF, &sa, 0);
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], 0, loop, 0);
	setitimer(ITIMER_PROF, &every, 0);
	puts("ready");
	fflush(stdout);
	getchar();
	stop = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], 0);
	printf("done wrong %ld failed %ld\n", wrong, failed);
	fflush(stdout);
	getchar();
	return calls > 0 ? 7 : 1;
}
