// A program that sets handlers of its own while it works. It prints "ready",
// works at once, sets handlers for SIGTRAP and SIGSEGV at a line and prints
// "set", works on, prints "done BAD STRANGE TRAPS FAULTS" at the next
// line and ends
// with status 7 after a further one. The handlers go on to what was there
// before for a trap or fault that isn't the program's own. TRAPS and FAULTS
// say whether all of the program's own were seen.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile int set, stop;
static volatile long bad, traps, trapped, faults, faulted, strange;
static struct sigaction old_trap, old_segv;
static char *page;
extern char own_trap[], own_load[];

// s may be a bad pointer: the program doesn't read it.
NOINLINE long work(long a, const char *s) { __asm__ volatile("" : : "r"(s)); return a * 3 + 1; }
NOINLINE long second(long a) { __asm__ volatile(""); return a * 5 + 2; }

NOINLINE static void own_int3(void) { __asm__ volatile("own_trap: int3\n\tnop"); }
NOINLINE static long own_fault(void) {
    long v = 0;
    __asm__ volatile("own_load: mov (%1), %0" : "+r"(v) : "r"(page));
    return v;
}

static void chain(struct sigaction *old, int sig, siginfo_t *si, void *ctx) {
    if (old->sa_flags & SA_SIGINFO) { old->sa_sigaction(sig, si, ctx); return; }
    strange++;
    signal(sig, SIG_DFL);
}
static void on_trap(int sig, siginfo_t *si, void *ctx) {
    ucontext_t *uc = ctx;
    if (uc->uc_mcontext.gregs[REG_RIP] == (greg_t)own_trap + 1) { __atomic_add_fetch(&trapped, 1, __ATOMIC_RELAXED); return; }
    chain(&old_trap, sig, si, ctx);
}
static void on_segv(int sig, siginfo_t *si, void *ctx) {
    ucontext_t *uc = ctx;
    if (uc->uc_mcontext.gregs[REG_RIP] == (greg_t)own_load && si->si_addr == page) {
        __atomic_add_fetch(&faulted, 1, __ATOMIC_RELAXED);
        uc->uc_mcontext.gregs[REG_RIP] += 3; // of the load
        return;
    }
    chain(&old_segv, sig, si, ctx);
}
static void *run(void *arg) {
    (void)arg;
    for (long i = 0; !stop; i++) {
        if (work(i, i & 1 ? "text" : (char *)0x123456780) != i * 3 + 1) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        if (second(i) != i * 5 + 2) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        if (set && i % 64 == 0) {
            __atomic_add_fetch(&traps, 1, __ATOMIC_RELAXED);
            own_int3();
            __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
            own_fault();
        }
    }
    return 0;
}
int main(void) {
    pthread_t t[2];
    char line[64];
    struct sigaction sa;
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, run, 0);
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    memset(&sa, 0, sizeof sa);
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sa.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &sa, &old_trap);
    sa.sa_sigaction = on_segv;
    sigaction(SIGSEGV, &sa, &old_segv);
    set = 1;
    puts("set"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("done %ld %ld %d %d\n", bad, strange, traps == trapped && traps > 0, faults == faulted && faults > 0); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 5;
    return 7;
}
