// Calls in every shape that a stack walk meets: frames without frame pointers,
// a frame of variable size, a realigned one, a callback through the C library, a
// signal handler on the thread's stack and on one of its own, threads, and
// recursion deeper than what is copied.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

volatile long sink;

NOINLINE void leaf(long n)
{
	sink += n;
	__asm__ volatile("" ::: "memory");
}

NOINLINE long plain(long n)
{
	leaf(n);
	return n + sink;
}

NOINLINE long saves(long a, long b, long c, long d)
{
	long x = plain(a + b), y = plain(c + d);
	return x * y + a * b + c * d;
}

NOINLINE long variable(long n)
{
	char room[n * 16 + 1];
	memset(room, 1, sizeof room);
	leaf(n);
	return plain(room[n]) + room[0];
}

NOINLINE long aligned(long n)
{
	long words[8] __attribute__((aligned(64)));
	for (int i = 0; i < 8; i++)
		words[i] = n + i;
	__asm__ volatile("" ::"r"(words) : "memory");
	return plain(words[n & 7]);
}

static inline __attribute__((always_inline)) long inlined(long n)
{
	return plain(n + 1) * 3; // line: inlined call
}

NOINLINE long host(long n)
{
	return inlined(n) + 7;
}

static int compare(const void *a, const void *b)
{
	plain(*(const int *)a);
	return *(const int *)a - *(const int *)b;
}

NOINLINE long sorts(void)
{
	int v[3] = {3, 1, 2};
	qsort(v, 3, sizeof v[0], compare);
	return v[0];
}

NOINLINE long deep(long n)
{
	volatile char pad[200];
	pad[0] = (char)n;
	if (n == 0)
		return plain(pad[0]);
	return deep(n - 1) + pad[0];
}

__attribute__((noreturn)) NOINLINE void leaves(long n)
{
	plain(n);
	_exit(sink == 4711);
}

static void on_signal(int sig)
{
	leaf(sig);
}

NOINLINE void interrupted(void)
{
	raise(SIGUSR1);
	raise(SIGUSR2);
}

static void *threaded(void *arg)
{
	return (void *)plain((long)arg);
}

NOINLINE void rounds(long n)
{
	for (long i = 0; i < n; i++) {
		pthread_t t;
		saves(i, 2, 3, 4);
		variable(i & 63);
		aligned(i);
		host(i);
		sorts();
		interrupted();
		pthread_create(&t, 0, threaded, (void *)i);
		pthread_join(t, 0);
		deep(3);
		deep(150);
	}
}

int main(int argc, char **argv)
{
	static char other[65536];
	stack_t ss = {.ss_sp = other, .ss_size = sizeof other};
	struct sigaction sa = {.sa_handler = on_signal};
	sigaltstack(&ss, 0);
	sigaction(SIGUSR1, &sa, 0);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &sa, 0);
	rounds(argc > 1 ? atol(argv[1]) : 1);
	leaves(argc);
}
