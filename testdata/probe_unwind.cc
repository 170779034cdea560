// Calls that don't return the ordinary way. Usage: probe_unwind MODE COUNT
// It prints "ready", waits for a line, runs MODE, prints "done …" and ends with
// status 7 after a further line. What it prints must not depend on who watches.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <execinfo.h>
#include <semaphore.h>
#include <stdexcept>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")
static long count, destroyed;
struct Guard { ~Guard() { destroyed++; } };

extern "C" {
NOINLINE long thrower(long n) {
    Guard g;
    if (n == 0) throw std::runtime_error("thrown");
    long r = thrower(n - 1);
    KEEP;
    return r + 1;
}
NOINLINE long catcher(long n) {
    long r = 0;
    try { r = thrower(n); } catch (const std::exception &e) { r = (long)strlen(e.what()); }
    KEEP;
    return r + n;
}
NOINLINE long frames(long n) {
    if (n == 0) { void *at[64]; return backtrace(at, 64); }
    long r = frames(n - 1);
    KEEP;
    return r;
}
NOINLINE long recurse(long n) { KEEP; if (n == 0) return 1; long r = recurse(n - 1); KEEP; return r + n; }
NOINLINE long work(long n) { KEEP; return n * 3; }
static sem_t entered;
static void cleanup(void *) { destroyed++; }
NOINLINE long waits(long n) {
    Guard g;
    long r = 0;
    pthread_cleanup_push(cleanup, nullptr);
    sem_post(&entered);
    if (n) for (;;) pause();
    pthread_cleanup_pop(0);
    KEEP;
    return r;
}
NOINLINE long leaves(long n) { Guard g; KEEP; if (n & 1) pthread_exit((void *)n); KEEP; return n; }
static jmp_buf jb;
#pragma GCC diagnostic ignored "-Winfinite-recursion"
NOINLINE long jumps(long n) { KEEP; if (n == 0) longjmp(jb, 3); jumps(n - 1); KEEP; return n; }
NOINLINE long sets(long n) { volatile long v = n; int k = _setjmp(jb); if (k == 0) jumps(n & 7); KEEP; return v + k; }
static ucontext_t here, there[2];
static long yields;
NOINLINE long yield(long who) { yields++; swapcontext(&there[who], &here); KEEP; return who; }
NOINLINE long body(long who) { long s = 0; for (int i = 0; i < 3; i++) s += yield(who) + work(i); KEEP; return s; }
static long sums[2];
static void coroutine(int who) { sums[who] += body(who); }
NOINLINE long resume(long who) { swapcontext(&here, &there[who]); KEEP; return who; }
NOINLINE long spawns(long n) { pid_t p = vfork(); if (p == 0) _exit((int)(n & 63)); int st; waitpid(p, &st, 0); KEEP; return WEXITSTATUS(st); }
NOINLINE long contexts(long n) { ucontext_t c; volatile int again = 0; getcontext(&c); if (!again) { again = 1; setcontext(&c); } KEEP; return n; }
}
static void *cancelled(void *n) { waits((long)n); return nullptr; }
static void *leaving(void *n) { return (void *)(leaves((long)n) + 0); }
static char stacks[2][65536];

static long one(const char *mode, long i) {
    if (!strcmp(mode, "throw")) return catcher(i & 7);
    if (!strcmp(mode, "frames")) return frames(i & 7);
    if (!strcmp(mode, "jump")) return sets(i);
    if (!strcmp(mode, "deep")) return recurse(i);
    if (!strcmp(mode, "vfork")) return spawns(i);
    if (!strcmp(mode, "context")) return contexts(i);
    if (!strcmp(mode, "cancel")) {
        pthread_t t;
        void *r;
        pthread_create(&t, nullptr, cancelled, (void *)1);
        sem_wait(&entered);
        pthread_cancel(t);
        pthread_join(t, &r);
        return r == PTHREAD_CANCELED ? 5 : -100000;
    }
    if (!strcmp(mode, "exit")) {
        pthread_t t;
        void *r;
        pthread_create(&t, nullptr, leaving, (void *)i);
        pthread_join(t, &r);
        return (long)r;
    }
    if (!strcmp(mode, "coroutine")) {
        for (int k = 0; k < 2; k++) {
            getcontext(&there[k]);
            there[k].uc_stack.ss_sp = stacks[k];
            there[k].uc_stack.ss_size = sizeof stacks[k];
            there[k].uc_link = &here;
            makecontext(&there[k], (void (*)())coroutine, 1, k);
        }
        long s = 0;
        for (int r = 0; r < 4; r++) s += resume(0) + resume(1);
        return s;
    }
    fprintf(stderr, "no mode %s\n", mode);
    exit(2);
}
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    count = atol(argv[2]);
    sem_init(&entered, 0, 0);
    char line[64];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long s = 0;
    if (!strcmp(argv[1], "deep")) s = one("deep", count);
    else for (long i = 0; i < count; i++) s += one(argv[1], i);
    printf("done %ld destroyed %ld yields %ld sums %ld %ld\n", s, destroyed, yields, sums[0], sums[1]); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
