// Threads that call functions which end in jumps to others, over and over until a line comes on
// standard input. Usage: probe_hops THREADS. It prints "ready", works at once, prints "done BAD"
// at the line, BAD being how many calls gave something else than they should, and ends with
// status 7 after a further line.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int stop;
static long bad;

#define LEAF(n) __attribute__((noinline)) long leaf##n(long x) { __asm__ volatile(""); return x * 3 + n; }
#define LEAVES(n) LEAF(n##0) LEAF(n##1) LEAF(n##2) LEAF(n##3) LEAF(n##4) LEAF(n##5) LEAF(n##6) LEAF(n##7) LEAF(n##8) LEAF(n##9)
LEAVES(1) LEAVES(2) LEAVES(3) LEAVES(4)

__attribute__((noinline)) long hop(long x) {
    __asm__ volatile("");
    if (x % 7 == 0) return leaf10(x);
    if (x % 5 == 0) return leaf11(x);
    if (x % 3 == 0) return leaf12(x);
    if (x % 2 == 0) return leaf13(x);
    return leaf14(x);
}

static void *run(void *arg) {
    while (!stop)
        for (long x = 1; x < 100; x++) {
            long n = x % 7 == 0 ? 10 : x % 5 == 0 ? 11 : x % 3 == 0 ? 12 : x % 2 == 0 ? 13 : 14;
            if (hop(x) != x * 3 + n) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        }
    return arg;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t t[16];
    char line[64];
    for (int i = 0; i < n; i++) pthread_create(&t[i], 0, run, 0);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    stop = 1;
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    printf("done %ld\n", bad);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
