// A program whose signals come all the time. It prints "ready", works until a
// line comes, prints "done BAD" and ends with status 7 after another line. The
// arguments are ways of handling signals: alt (on an alternate stack), nested
// (handlers are interrupted by others), jump (every third handler leaves by
// siglongjmp), wait (a thread waits in system calls), exits (threads come and
// go), block (SIGTRAP is blocked while a handler runs), deep (handlers call down).
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile int stop, jump, nested, waits, deep;
static volatile long bad;
static __thread volatile long seen;
static __thread volatile int depth, canjump;
static __thread sigjmp_buf back;

NOINLINE long work(long a, long b) { __asm__ volatile("" : : : "memory"); return a * 3 + b; }
NOINLINE long down(long n) {
    if (n == 0) return work(1, 2);
    long v = down(n - 1);
    __asm__ volatile("" : "+r"(v));
    return v + 1;
}
NOINLINE void on_usr1(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si; (void)ctx;
    int e = errno;
    depth++;
    long was = seen;
    if (work(was, 1) != was * 3 + 1) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
    if (deep && down(5) != 10) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
    if (nested && depth < 4 && seen % 5 == 0) raise(SIGUSR2);
    seen++;
    depth--;
    if (jump && depth == 0 && canjump && seen % 3 == 0) { canjump = 0; siglongjmp(back, 1); }
    errno = e;
}
NOINLINE void on_usr2(int sig) {
    (void)sig;
    depth++;
    long was = seen++;
    if (work(was, 2) != was * 3 + 2) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
    depth--;
}
static void *stack(void) {
    stack_t ss = {.ss_sp = malloc(1 << 17), .ss_size = 1 << 17};
    sigaltstack(&ss, 0);
    return ss.ss_sp;
}
static void *short_lived(void *arg) {
    raise(SIGUSR1);
    return arg;
}
static void *run(void *arg) {
    long i = 0;
    stack();
    while (!stop) {
        sigset_t set;
        if (jump && !sigsetjmp(back, 1)) canjump = 1;
        for (int k = 0; k < 50; k++, i++)
            if (work(i, 7) != i * 3 + 7) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        canjump = 0;
        sigemptyset(&set);
        raise(SIGUSR1);
        if (arg) { struct timespec ts = {0, 20000}; nanosleep(&ts, 0); }
    }
    return 0;
}
static void *exits(void *arg) {
    (void)arg;
    while (!stop) {
        pthread_t t;
        if (pthread_create(&t, 0, short_lived, 0) == 0) pthread_join(t, 0);
    }
    return 0;
}
int main(int argc, char **argv) {
    struct sigaction sa;
    pthread_t t[4];
    int n = 0, alt = 0, thread_exits = 0, block = 0;
    char line[64];
    for (int i = 1; i < argc; i++) {
        alt |= !strcmp(argv[i], "alt");
        nested |= !strcmp(argv[i], "nested");
        jump |= !strcmp(argv[i], "jump");
        waits |= !strcmp(argv[i], "wait");
        thread_exits |= !strcmp(argv[i], "exits");
        block |= !strcmp(argv[i], "block");
        deep |= !strcmp(argv[i], "deep");
    }
    memset(&sa, 0, sizeof sa);
    sa.sa_flags = SA_SIGINFO | SA_RESTART | (alt ? SA_ONSTACK : 0);
    sa.sa_sigaction = on_usr1;
    if (block) sigaddset(&sa.sa_mask, SIGTRAP);
    sigaction(SIGUSR1, &sa, 0);
    sigaction(SIGALRM, &sa, 0);
    sa.sa_flags &= ~SA_SIGINFO;
    sa.sa_handler = on_usr2;
    sigaction(SIGUSR2, &sa, 0);
    pthread_create(&t[n++], 0, run, 0);
    if (waits) pthread_create(&t[n++], 0, run, (void *)1);
    if (thread_exits) pthread_create(&t[n++], 0, exits, 0);
    struct itimerval it = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &it, 0);
    puts("ready"); fflush(stdout);
    while (!fgets(line, sizeof line, stdin))
        if (!ferror(stdin) || errno != EINTR) return 3; else clearerr(stdin);
    stop = 1;
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    memset(&it, 0, sizeof it);
    setitimer(ITIMER_REAL, &it, 0);
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 5;
    return 7;
}
