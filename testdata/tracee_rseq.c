// Two threads on one CPU: one executes restartable sequences that fail if they
// are interrupted and yet not aborted, the other changes what they watch.
// Prints its pid; ends with status 0 when standard input closes, 1 after a
// sequence that was wrongly taken for undisturbed, 2 if none was ever aborted,
// 77 if the C library has registered no rseq area.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

extern const ptrdiff_t __rseq_offset;
extern const unsigned int __rseq_size;
static volatile int stop;
static volatile uint64_t watched;

static void *change(void *a) {
	while (!stop) {
		watched++;
		sched_yield();
	}
	return 0;
}

static void *wait_end(void *a) {
	char c;
	while (read(0, &c, 1) > 0) {}
	stop = 1;
	return 0;
}

// sequence reads watched at its start and at its end. It gives 0 if they are
// the same, 1 if they differ, 2 if the sequence was aborted.
static long sequence(void) {
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
	long result = 2;
	uint64_t first = 0, n = 20000;
	__asm__ volatile(
		".pushsection .data.rel, \"aw\"\n"
		".balign 32\n"
		"7: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n"
		".popsection\n"
		"lea 7b(%%rip), %%rax\n mov %%rax, 8(%[area])\n"
		"1: mov %[watched], %[first]\n"
		"3: dec %[n]\n jnz 3b\n"
		"cmp %[watched], %[first]\n"
		"mov $0, %k[result]\n"
		"setne %b[result]\n"
		"2: jmp 5f\n"
		".long 0x53053053\n"
		"4: mov $2, %k[result]\n"
		"5:\n"
		: [result] "+&q"(result), [first] "+&r"(first), [n] "+&r"(n)
		: [area] "r"(area), [watched] "m"(watched)
		: "rax", "memory", "cc");
	*(volatile uint64_t *)(area + 8) = 0;
	return result;
}

int main(void) {
	pthread_t t, w;
	cpu_set_t one;
	if (__rseq_size == 0)
		return 77;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	pthread_create(&w, 0, wait_end, 0);
	sched_setaffinity(0, sizeof one, &one);
	pthread_create(&t, 0, change, 0);
	printf("%d\n", getpid());
	fflush(stdout);
	long aborted = 0, wrong = 0;
	while (!stop) {
		long r = sequence();
		aborted += r == 2;
		wrong += r == 1;
	}
	pthread_join(t, 0);
	fprintf(stderr, wrong ? "%ld sequences were wrong\n" : "", wrong);
	return wrong ? 1 : aborted ? 0 : 2;
}
