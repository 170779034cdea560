// Calls that return, and calls that don't. Usage: probe_returns MODE COUNT THREADS
// It prints "ready", waits for a line, does MODE COUNT times in each thread, prints "done CALLS RETURNS" of the function rec, and ends with
// status 7 after another line.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static long calls, returns;
static const char *mode;
static char *self;
static long count;
static __thread jmp_buf out;
static __thread int bottom; // what the innermost call does
enum { RETURN, JUMP, LEAVE, FORK, EXEC };

NOINLINE static long act(void) {
    switch (bottom) {
    case JUMP: longjmp(out, 1);
    case LEAVE: pthread_exit(0);
    case FORK: fflush(stdout); return fork();
    case EXEC: execl(self, self, "exec2", "0", "1", (char *)0); abort();
    }
    return 0;
}
// With -DSHARED rec returns by a jump to another function.
NOINLINE long end(unsigned long r) { __asm__ volatile("" ::: "memory"); return (long)r; }
#ifndef SHARED
#define end(r) (long)(r)
#endif
NOINLINE long rec(unsigned long n) {
    unsigned long r = (unsigned long)(n ? rec(n - 1) : act());
    __asm__ volatile("" ::: "memory");
    return end(r * 3 + n);
}
// run calls rec, n+1 calls in each other.
NOINLINE static long run(long n, int how) {
    bottom = how;
    __atomic_add_fetch(&calls, n + 1, __ATOMIC_RELAXED);
    if (setjmp(out) != 0) return -1;
    long r = rec(n);
    __atomic_add_fetch(&returns, n + 1, __ATOMIC_RELAXED);
    return r;
}
static void *leaver(void *a) { (void)a; run(20, LEAVE); return 0; }
static void once(long i) {
    if (!strcmp(mode, "flat")) run(0, RETURN);
    if (!strcmp(mode, "deep")) run(1000, RETURN);
    if (!strcmp(mode, "jump")) { run(99, JUMP); run(4, RETURN); run(99, i & 1 ? JUMP : RETURN); }
    if (!strcmp(mode, "leave")) {
        pthread_t t;
        pthread_create(&t, 0, leaver, 0);
        pthread_join(t, 0);
        run(5, RETURN);
    }
    if (!strcmp(mode, "fork")) {
        pid_t parent = getpid();
        run(8, FORK);
        if (getpid() != parent) _exit(9);
        int st;
        wait(&st);
        if (!WIFEXITED(st) || WEXITSTATUS(st) != 9) abort();
        run(3, RETURN);
    }
    if (!strcmp(mode, "exec")) run(8, RETURN);
}
static void *work(void *a) { for (long i = 0; i < count; i++) once(i); return a; }
int main(int argc, char **argv) {
    char line[64];
    pthread_t t[16];
    if (argc < 4) return 2;
    self = argv[0]; mode = argv[1]; count = atol(argv[2]);
    int threads = atoi(argv[3]);
    if (strcmp(mode, "exec2")) {
        puts("ready"); fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 3;
    }
    for (int i = 1; i < threads; i++) pthread_create(&t[i], 0, work, 0);
    work(0);
    for (int i = 1; i < threads; i++) pthread_join(t[i], 0);
    printf("done %ld %ld\n", calls, returns); fflush(stdout);
    if (!strcmp(mode, "exec")) run(8, EXEC);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
