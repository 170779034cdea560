// Threads that compute with general and vector registers, make system calls,
// and check their own results; and one that waits. Ends with status 0 when
// standard input closes, 1 when a result is wrong.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <time.h>
#include <sys/syscall.h>
#include <immintrin.h>

static volatile int stop;
static volatile unsigned long rounds;

__attribute__((target("avx2"), noinline)) static uint64_t vectors(uint64_t n) {
	__m256i a = _mm256_set1_epi64x(n), b = _mm256_set_epi64x(1, 2, 3, 4);
	for (int i = 0; i < 2000; i++) {
		a = _mm256_add_epi64(a, b);
		b = _mm256_xor_si256(b, _mm256_slli_epi64(a, 1));
	}
	uint64_t v[4];
	_mm256_storeu_si256((void *)v, _mm256_xor_si256(a, b));
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

__attribute__((target("avx512f"), noinline)) static uint64_t wide(uint64_t n) {
	__m512i a = _mm512_set1_epi64(n), b = _mm512_set1_epi64(3);
	for (int i = 0; i < 2000; i++) {
		a = _mm512_add_epi64(a, b);
		b = _mm512_mask_xor_epi64(b, (__mmask8)(i | 0x55), b, _mm512_slli_epi64(a, 1));
	}
	uint64_t v[8], x = 0;
	_mm512_storeu_si512(v, _mm512_xor_si512(a, b));
	for (int i = 0; i < 8; i++)
		x ^= v[i] * (i + 1);
	return x;
}

static uint64_t scalar(uint64_t n) {
	uint64_t x = n;
	double d = 1;
	for (int i = 0; i < 2000; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		d = d * 1.0000001 + (double)(x & 7);
	}
	return x ^ (uint64_t)d;
}

static void *work(void *arg) {
	uint64_t n = (uint64_t)arg;
	int avx = __builtin_cpu_supports("avx2");
	int avx512 = __builtin_cpu_supports("avx512f");
	uint64_t want3 = avx512 ? wide(n) : 0;
	uint64_t want = avx ? vectors(n) : 0, want2 = scalar(n);
	while (!stop) {
		if ((avx512 && wide(n) != want3) || (avx && vectors(n) != want) || scalar(n) != want2) {
			fprintf(stderr, "wrong result\n");
			_exit(1);
		}
		if (syscall(SYS_getppid) <= 0 || getpid() <= 0)
			_exit(1);
		rounds++;
	}
	return 0;
}

static void *sleeper(void *arg) {
	while (!stop) {
		struct timespec ts = {0, 3000000};
		int e = clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, 0);
		if (e) {
			fprintf(stderr, "clock_nanosleep: %s\n", strerror(e));
			_exit(1);
		}
	}
	return 0;
}

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 3;
	pthread_t t[64];
	for (long i = 0; i < n; i++)
		pthread_create(&t[i], 0, work, (void *)(i + 1));
	pthread_t s;
	pthread_create(&s, 0, sleeper, 0);
	printf("%d\n", getpid());
	fflush(stdout);
	char c;
	ssize_t r;
	while ((r = read(0, &c, 1)) > 0) {
		printf("%lu\n", rounds);
		fflush(stdout);
	}
	if (r < 0) {
		fprintf(stderr, "read: %s\n", strerror(errno));
		return 1;
	}
	stop = 1;
	for (int i = 0; i < n; i++)
		pthread_join(t[i], 0);
	pthread_join(s, 0);
	return 0;
}
