// A program with a child in its memory (clone with CLONE_VM, without
// CLONE_VFORK). It prints "ready" and works at once, as does the child. With
// "faults" both come to a bad pointer now and then from a first line on, which the
// handler for SIGSEGV mends; with "leaves" the parent ends at the first line, with "executes" it
// executes cat, and the child goes on. At a line both stop; "done BAD" is printed,
// and after a further line the program ends with status 7.
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile int stop, listens, faulting;
static volatile long bad, mended;
static long good = 42;
static char *mode = "";

NOINLINE long work(long a, long b) { __asm__ volatile("" ::: "memory"); return a * 3 + b; }
NOINLINE long load(long *p) {
    long v;
    __asm__ volatile("mov (%1), %0\n\tadd $1, %0\n\tnop" : "=&r"(v) : "D"(p) : "memory", "cc");
    return v;
}
static void on_segv(int sig, siginfo_t *si, void *ctx) {
    ucontext_t *uc = ctx;
    (void)sig; (void)si;
    mended++;
    uc->uc_mcontext.gregs[REG_RDI] = (greg_t)&good;
}
static void loop(int who) {
    for (long i = 0; !stop; i++) {
        int faults = faulting && i % (who ? 256 : 1 << 18) == 7;
        if (work(i, 7) != i * 3 + 7) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        if (load(faults ? (long *)16 : &good) != 43) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        if (who == listens && i % 1024 == 0) {
            struct pollfd in = {0, POLLIN, 0};
            char c;
            if (poll(&in, 1, 0) == 1 && read(0, &c, 1) == 1) {
                if (!strcmp(mode, "faults") && !faulting) faulting = 1; else stop = 1;
            }
        }
    }
}
static int child(void *arg) {
    char c;
    (void)arg;
    if (strcmp(mode, "leaves") && strcmp(mode, "executes")) prctl(PR_SET_PDEATHSIG, SIGKILL);
    loop(1);
    if (!strcmp(mode, "leaves") || !strcmp(mode, "executes")) {
        char text[64];
        int n = snprintf(text, sizeof text, "done %ld\n", bad);
        if (write(1, text, n) != n || read(0, &c, 1) != 1) _exit(5);
    }
    _exit(7);
}
int main(int argc, char **argv) {
    char line[64];
    int st;
    struct sigaction sa = {0};
    if (argc > 1) mode = argv[1];
    sa.sa_sigaction = on_segv;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &sa, 0);
    char *stack = malloc(1 << 18);
    pid_t pid = clone(child, stack + (1 << 18), CLONE_VM | SIGCHLD, 0);
    if (pid < 0) return 2;
    printf("ready %d\n", pid); fflush(stdout);
    if (!strcmp(mode, "leaves") || !strcmp(mode, "executes")) {
        char c;
        for (long i = 0; i < 100000; i++) if (work(i, 7) != i * 3 + 7) bad++;
        if (read(0, &c, 1) != 1) return 3;
        listens = 1;
        if (mode[0] == 'l') _exit(7);
        execlp("sleep", "sleep", "60", (char *)0);
        return 4;
    }
    loop(0);
    if (waitpid(pid, &st, 0) != pid || st != 7 << 8) bad++;
    if (!strcmp(mode, "faults") && !mended) bad++;
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 5;
    return 7;
}
