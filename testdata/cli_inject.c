/* cli_inject COUNT THREADS: each thread calls work and opens a file COUNT times. It
 * prints how many results of work were wrong, how many calls took more than a fifth
 * of a second, how many opens failed, and the errno of the last; it ends with 7. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long count, wrong, slow, failed;
static int last;

__attribute__((noinline, noclone)) long work(long n)
{
	__asm__ volatile("");
	return 2 * n;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *calls(void *arg)
{
	for (long i = 0; i < count; i++) {
		double start = now();
		if (work(i) != 2 * i)
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
		if (now() - start > 0.2)
			__atomic_add_fetch(&slow, 1, __ATOMIC_RELAXED);
		int fd = open("/dev/null", O_RDONLY);
		if (fd < 0) {
			last = errno;
			__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
		} else {
			close(fd);
		}
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[64];
	int threads = argc > 2 ? atoi(argv[2]) : 1;
	count = argc > 1 ? atol(argv[1]) : 1;
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], 0, calls, 0);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], 0);
	printf("wrong %ld slow %ld failed %ld errno %d\n", wrong, slow, failed, last);
	return 7;
}
