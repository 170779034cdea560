/* Publishes the trace and the span of each thread as OpenTelemetry's thread context:
   the address of a record in a thread-local variable that can be found by its name. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct context {
	uint8_t trace[16], span[8];
	uint8_t valid, flags;
	uint16_t attrs;
	uint8_t data[4];
} __attribute__((packed));

__thread struct context *otel_thread_ctx_v1;

#define NOINLINE __attribute__((noipa))
NOINLINE long work(long n) { __asm__ volatile(""); return n * 3; }

static void *request(void *arg)
{
	long n = (long)arg, sum = 0;
	struct context c = { .valid = 1 };
	for (int i = 0; i < 16; i++)
		c.trace[i] = 16 * n + i;
	for (int i = 0; i < 8; i++)
		c.span[i] = 0xf0 - 16 * i + n;
	sum += work(100 * n); /* no context */
	otel_thread_ctx_v1 = &c;
	sum += work(100 * n + 1);
	c.valid = 0;
	sum += work(100 * n + 2);
	c.valid = 1;
	sum += work(100 * n + 3);
	otel_thread_ctx_v1 = 0;
	return (void *)sum;
}

int main(int argc, char **argv)
{
	char line[8];
	long sum = 0;
	setvbuf(stdout, 0, _IOLBF, 0);
	printf("ready\n");
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (long n = 1; n <= atoi(argv[1]); n++) {
		pthread_t t;
		void *r;
		pthread_create(&t, 0, request, (void *)n);
		pthread_join(t, &r);
		sum += (long)r;
	}
	printf("done %ld\n", sum);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	return 7;
}
