// Threads that use a library's thread-local variables. argv: the library ("" is
// one it is linked with), the number of threads.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread long own;
static long (*set)(long);

__attribute__((noinline)) long own_hit(long n)
{
	asm volatile("" ::: "memory");
	return own + n;
}

static void *work(void *arg)
{
	long n = (long)arg;
	own = n * 7;
	own_hit(n);
	return (void *)set(n);
}

int main(int argc, char **argv)
{
	char line[16];
	long sum = 0, count = atol(argv[2]);
	pthread_t t[16];
	void *part = dlopen(argv[1][0] ? argv[1] : 0, RTLD_NOW);
	if (!part || !(set = (long (*)(long))dlsym(part, "part_set"))) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (long i = 1; i <= count; i++)
		pthread_create(&t[i], 0, work, (void *)i);
	for (long i = 1; i <= count; i++) {
		void *r;
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	printf("done %ld\n", sum);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
