// A thread that holds a pattern in vector registers of the width asked for
// ("sse", "avx", "avx512") and looks at it all the time. Prints its process id
// and the thread's, and ends with status 0 when standard input closes, 1 if
// the pattern has changed, 77 if the processor has no such registers.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int stop;
static unsigned char pattern[64] __attribute__((aligned(64)));
static const char *width;

// The processor knows which registers are in their initial state, and saves
// only the others. What the C library used of the wide ones is put back to it.
static void forget_wide(unsigned components) {
	static unsigned char none[1024] __attribute__((aligned(64)));
	__asm__ volatile("xrstor %0" : : "m"(none), "a"(components), "d"(0) : "memory");
}

static int holds_sse(void) {
	int bad = 0;
	__asm__ volatile("movdqa %[p], %%xmm15\n"
	                 "1: movdqa %%xmm15, %%xmm1\n"
	                 "pcmpeqb %[p], %%xmm1\n"
	                 "pmovmskb %%xmm1, %%eax\n"
	                 "xor $0xffff, %%eax\n"
	                 "or %%eax, %[bad]\n"
	                 "cmpl $0, %[stop]\n"
	                 "je 1b\n"
	                 : [bad] "+r"(bad)
	                 : [p] "m"(pattern), [stop] "m"(stop)
	                 : "rax", "xmm1", "xmm15", "cc");
	return bad;
}

__attribute__((target("avx2"))) static int holds_avx(void) {
	int bad = 0;
	__asm__ volatile("vmovdqa %[p], %%ymm15\n"
	                 "1: vpcmpeqb %[p], %%ymm15, %%ymm1\n"
	                 "vpmovmskb %%ymm1, %%eax\n"
	                 "not %%eax\n"
	                 "or %%eax, %[bad]\n"
	                 "cmpl $0, %[stop]\n"
	                 "je 1b\n"
	                 "vzeroupper\n"
	                 : [bad] "+r"(bad)
	                 : [p] "m"(pattern), [stop] "m"(stop)
	                 : "rax", "xmm1", "xmm15", "cc");
	return bad;
}

__attribute__((target("avx512f"))) static int holds_avx512(void) {
	int bad = 0;
	__asm__ volatile("vmovdqa64 %[p], %%zmm31\n"
	                 "1: vpcmpneqd %[p], %%zmm31, %%k1\n"
	                 "kmovw %%k1, %%eax\n"
	                 "or %%eax, %[bad]\n"
	                 "cmpl $0, %[stop]\n"
	                 "je 1b\n"
	                 : [bad] "+r"(bad)
	                 : [p] "m"(pattern), [stop] "m"(stop)
	                 : "rax", "xmm31", "k1", "cc");
	return bad;
}

static void *work(void *arg) {
	printf("%ld\n", syscall(SYS_gettid));
	fflush(stdout);
	if (!strcmp(width, "sse"))
		forget_wide(0xe4); // AVX and AVX-512
	else if (!strcmp(width, "avx"))
		forget_wide(0xe0);
	int bad = !strcmp(width, "sse") ? holds_sse() : !strcmp(width, "avx") ? holds_avx() : holds_avx512();
	if (bad)
		_exit(1);
	return arg;
}

int main(int argc, char **argv) {
	width = argc > 1 ? argv[1] : "sse";
	printf("%d\n", getpid());
	fflush(stdout);
	if ((!strcmp(width, "avx") && !__builtin_cpu_supports("avx2")) ||
	    (!strcmp(width, "avx512") && !__builtin_cpu_supports("avx512f"))) {
		printf("0\n");
		return 77;
	}
	for (int i = 0; i < 64; i++)
		pattern[i] = i * 37 + 1;
	pthread_t t;
	pthread_create(&t, 0, work, 0);
	char c;
	while (read(0, &c, 1) > 0)
		;
	stop = 1;
	pthread_join(t, 0);
	return 0;
}
