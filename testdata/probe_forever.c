// Threads that calculate the same over and over until a line comes on standard
// input. Usage: probe_forever THREADS [block]. It prints "ready", works at
// once, prints "done BAD" at the line, BAD being how many rounds came out
// wrong, and ends with status 7 after a further line. With block all threads
// but the first block every signal.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile int stop;
static long bad;
NOINLINE long work(long a, const char *s) { __asm__ volatile(""); return a * 3 + s[0]; }
NOINLINE long recurse(long n) { __asm__ volatile(""); if (n == 0) return 1; long r = recurse(n - 1); __asm__ volatile(""); return r + n; }
NOINLINE long table(long n) {
    switch (n % 7) {
    case 0: return 11; case 1: return n * 2; case 2: return 13 + n; case 3: return n ^ 5; case 4: return 99; case 5: return n - 4; default: return n * n;
    }
}
NOINLINE long text(long n) { char b[32]; snprintf(b, sizeof b, "item %ld", n); return (long)strlen(b); }
static long round_of_work(void) {
    long s = 0;
    for (long i = 0; i < 12; i++) s = s * 5 + work(i, "hello") + recurse(i & 3) + table(i) + text(i);
    return s;
}
static void *run(void *want) {
    while (!stop)
        if (round_of_work() != *(long *)want) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
    return 0;
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    long want = round_of_work();
    sigset_t all, old;
    pthread_t t[16];
    char line[64];
    if (argc > 2) { sigfillset(&all); pthread_sigmask(SIG_SETMASK, &all, &old); }
    for (int i = 0; i < n; i++) pthread_create(&t[i], 0, run, &want);
    if (argc > 2) pthread_sigmask(SIG_SETMASK, &old, 0);
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    stop = 1;
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
