// Makes threads or processes one after the other, which call work.
// Usage: storm_births MODE [N]. It prints "ready", makes N of them after a line on
// standard input, or without N at once and until the line, prints "done PARENT
// CHILD BAD": the calls by those that make, those by what was made, and how much
// was wrong; and ends with status 7 after a further line.
// MODE is thread, fork, vfork, deep (a fork that forks), or held: one child of
// vfork, which reads the line itself and calls work five times then.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static long *calls, bad;
NOINLINE long work(long a) { __asm__ volatile("" ::: "memory"); return a < 0 ? -a : a * 3 + 1; }
static int some(int n, int who) {
    for (int i = 0; i < n; i++) {
        if (work(i) != i * 3 + 1) return 0;
        __atomic_add_fetch(&calls[who], 1, __ATOMIC_RELAXED);
    }
    return 1;
}
static void *thread(void *arg) {
    (void)arg;
    if (!some(2, 1)) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
    return 0;
}
static void ended(pid_t pid, int want) {
    int st;
    if (waitpid(pid, &st, 0) != pid || !WIFEXITED(st) || WEXITSTATUS(st) != want) {
        __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        fprintf(stderr, "a child ended with %#x, not with %d\n", st, want);
    }
}
static void birth(const char *mode) {
    pthread_t t[3];
    pid_t pid;
    if (!strcmp(mode, "thread")) {
        for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, thread, 0);
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
        return;
    }
    if (!strcmp(mode, "vfork")) {
        if (!(pid = vfork())) _exit(some(2, 1) ? 5 : 6);
    } else if (!(pid = fork())) {
        if (!strcmp(mode, "deep")) {
            if (!(pid = fork())) _exit(some(2, 1) ? 9 : 6);
            ended(pid, 9);
        }
        _exit(some(2, 1) && !bad ? 5 : 6);
    }
    ended(pid, 5);
}
static void *hold(void *arg) {
    pid_t pid;
    char line[8];
    (void)arg;
    if (!(pid = vfork())) {
        (void)!write(1, "ready\n", 6);
        (void)!read(0, line, 1);
        _exit(some(5, 1) ? 5 : 6);
    }
    ended(pid, 5);
    return 0;
}
int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "fork";
    long n = argc > 2 ? atol(argv[2]) : 0;
    char line[8];
    struct pollfd in = {0, POLLIN, 0};
    calls = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(mode, "held")) {
        pthread_t t;
        pthread_create(&t, 0, hold, 0);
        pthread_join(t, 0);
    } else {
        (void)!write(1, "ready\n", 6);
        if (n) (void)!read(0, line, 1);
        for (long i = 0; n ? i < n : !poll(&in, 1, 0); i++) {
            if (!some(3, 0)) bad++;
            birth(mode);
        }
        if (!n) (void)!read(0, line, 1);
    }
    printf("done %ld %ld %ld\n", calls[0], calls[1], bad);
    fflush(stdout);
    (void)!read(0, line, 1);
    return 7;
}
