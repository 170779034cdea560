/* interrupted_detour: a thread calls work(N) for N = 1, 2, …, as fast as it can, and gets SIGUSR1 all the
 * time. "ready TID" names it. After a line "LO HI" (hexadecimal) the first handler that finds it outside the
 * program's text, with %rcx in [LO, HI) or, if HI is 0, anywhere, says "inside" and waits for a line.
 * After another it prints "done CALLS", and ends after a third. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern char __executable_start[], etext[];
static volatile uint64_t lo, hi, calls;
static volatile int armed, inside, stop, tid;

__attribute__((noinline)) void work(uint64_t n) { __asm__ volatile("nop; nop; nop; nop; nop" : "+r"(n) : : "memory"); }

static void handler(int sig, siginfo_t *si, void *arg) {
    greg_t *g = ((ucontext_t *)arg)->uc_mcontext.gregs;
    uint64_t ip = g[REG_RIP], cx = g[REG_RCX];
    if (!armed || (ip >= (uintptr_t)__executable_start && ip < (uintptr_t)etext) || (hi && (cx < lo || cx >= hi)))
        return;
    armed = 0;
    inside = 1;
    while (inside == 1)
        poll(NULL, 0, 10);
}

static void *run(void *p) {
    tid = syscall(SYS_gettid);
    while (!stop) {
        uint64_t n = calls + 1;
        work(n);
        calls = n;
    }
    return NULL;
}

static void line(char *b, int n) {
    if (!fgets(b, n, stdin))
        exit(4);
}

int main(void) {
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &act, NULL);
    pthread_t id;
    pthread_create(&id, NULL, run, NULL);
    while (!tid)
        usleep(1000);
    printf("ready %d\n", tid);
    fflush(stdout);
    char b[64];
    line(b, sizeof b);
    unsigned long from = 0, to = 0;
    sscanf(b, "%lx %lx", &from, &to);
    lo = from, hi = to, armed = 1;
    for (int n = 0; !inside; n++) {
        pthread_kill(id, SIGUSR1);
        usleep(50 + n % 100);
    }
    printf("inside\n");
    fflush(stdout);
    line(b, sizeof b);
    inside = 2;
    line(b, sizeof b);
    stop = 1;
    pthread_join(id, NULL);
    printf("done %llu\n", (unsigned long long)calls);
    fflush(stdout);
    line(b, sizeof b);
    return 7;
}
