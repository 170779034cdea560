// Signals and faults at probed instructions. Usage: probe_faults MODE COUNT [early]
// It prints "ready", waits for a line, runs MODE, prints "done …" and ends with
// status 7 after a further line. What it prints must not depend on who watches.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static long count, bad;
static char *page;
char far_page[4096] __attribute__((aligned(4096))) = {1};

// Each faults when its page may not be read; the probed instruction comes first.
long load(long *p), load_rip(void), push_load(long *p), call_load(void (**p)(void)), store_add(long *p, long n);
void copy(char *to, char *from, long n), own_int3(void), after_int3(void);
__asm__(".text\n"
        ".globl load\n.type load,@function\nload: movq (%rdi),%rax\n incq %rax\n ret\n.size load,.-load\n"
        ".globl load_rip\n.type load_rip,@function\nload_rip: movq far_page(%rip),%rax\n ret\n.size load_rip,.-load_rip\n"
        ".globl push_load\n.type push_load,@function\npush_load: pushq (%rdi)\n popq %rax\n ret\n.size push_load,.-push_load\n"
        ".globl call_load\n.type call_load,@function\ncall_load: subq $8,%rsp\n call *(%rdi)\n addq $8,%rsp\n ret\n.size call_load,.-call_load\n"
        ".globl store_add\n.type store_add,@function\nstore_add: lock xaddq %rsi,(%rdi)\n movq %rsi,%rax\n ret\n.size store_add,.-store_add\n"
        ".globl copy\n.type copy,@function\ncopy: movq %rdx,%rcx\n rep movsb\n ret\n.size copy,.-copy\n"
        ".globl own_int3\n.type own_int3,@function\nown_int3: incq %rax\n int3\nafter_int3: ret\n.size own_int3,.-own_int3\n");

static void unexpected(const char *what, unsigned long have, unsigned long want) {
    if (bad++ < 5) fprintf(stderr, "%s is %#lx, want %#lx\n", what, have, want);
}
NOINLINE long work(long a) { __asm__ volatile(""); return a * 3 + 1; }

// prof: where do signals find the program?
static struct { unsigned long lo, hi; } text[64];
static int texts;
static volatile long ticks;
static void read_text(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512], perm[8];
    unsigned long lo, hi;
    while (f && texts < 64 && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %7s", &lo, &hi, perm) == 3 && perm[2] == 'x') {
            text[texts].lo = lo;
            text[texts++].hi = hi;
        }
    if (f) fclose(f);
}
static void on_prof(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    unsigned long ip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    ticks++;
    for (int i = 0; i < texts; i++)
        if (ip >= text[i].lo && ip < text[i].hi) return;
    if (bad++ < 5) dprintf(2, "a signal found the program at %#lx\n", ip);
}
static void *prof(void *arg) {
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t id;
    struct itimerspec every = {{0, 300000}, {0, 300000}};
    if (timer_create(CLOCK_MONOTONIC, &ev, &id) || timer_settime(id, 0, &every, 0)) bad++;
    long s = 0;
    for (long i = 0; i < count; i++) s += work(i);
    while (ticks < 20) {}
    timer_delete(id);
    *(long *)arg = s;
    return 0;
}

// segv: the handler repairs and returns; it must see the probed instruction.
static volatile unsigned long want_ip, want_addr, faults;
static void on_segv(int sig, siginfo_t *si, void *ctx) {
    (void)sig;
    greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
    if ((unsigned long)r[REG_RIP] != want_ip) unexpected("rip", r[REG_RIP], want_ip);
    if ((unsigned long)si->si_addr != want_addr) unexpected("si_addr", (unsigned long)si->si_addr, want_addr);
    faults++;
    mprotect((void *)(want_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}
static void skip_segv(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
    if ((unsigned long)r[REG_RIP] != want_ip) unexpected("rip", r[REG_RIP], want_ip);
    faults++;
    r[REG_RIP] += 3; // over movq (%rdi),%rax
    r[REG_RAX] = 41;
}
static sigjmp_buf back;
static void jump_segv(int sig) { (void)sig; faults++; siglongjmp(back, 1); }
static void nothing(void) {}
NOINLINE long jumps_out(long n) { __asm__ volatile(""); long v = load((long *)page); __asm__ volatile(""); return v + n; }
static void deny(void *p) { mprotect(p, 4096, PROT_NONE); }
static void action(int sig, void (*f)(int, siginfo_t *, void *)) {
    struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigaction(sig, &a, 0);
}

static volatile long traps;
static void on_trap(int sig, siginfo_t *si, void *ctx) {
    (void)sig;
    unsigned long ip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    traps++;
    if (si->si_code == SI_KERNEL && ip != (unsigned long)after_int3) unexpected("rip at int3", ip, (unsigned long)after_int3);
}
static volatile long steps;
static unsigned long step_lo, step_hi;
static void on_step(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    unsigned long ip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    if (ip >= step_lo && ip < step_hi) steps++;
}
static long blocked(long n) {
    sigset_t all, now;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    long s = 0;
    for (long i = 0; i < n; i++) s += work(i);
    pthread_sigmask(SIG_SETMASK, 0, &now);
    if (!sigismember(&now, SIGTRAP)) unexpected("the mask", 0, 1);
    sigemptyset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    raise(SIGTRAP);
    return s + traps;
}
static volatile long alt_sum;
static char stack[65536];
static void on_usr(int sig) { (void)sig; for (int i = 0; i < 3; i++) alt_sum += work(i); }

static int early; // the handler is set before the program says that it is ready
static long run(const char *mode) {
    long s = 0;
    if (!strcmp(mode, "prof")) {
        action(SIGPROF, on_prof);
        long sums[2];
        pthread_t t;
        pthread_create(&t, 0, prof, &sums[1]);
        prof(&sums[0]);
        pthread_join(t, 0);
        return sums[0] + sums[1];
    }
    if (!strcmp(mode, "repair")) {
        if (!early) action(SIGSEGV, on_segv);
        for (long i = 0; i < count; i++) {
            char to[128];
            want_addr = (unsigned long)page;
            deny(page); want_ip = (unsigned long)load; s += load((long *)page);
            deny(page); want_ip = (unsigned long)push_load; s += push_load((long *)page);
            deny(page); want_ip = (unsigned long)call_load + 4; s += call_load((void (**)(void))page) != 0;
            want_addr = (unsigned long)page + 64;
            deny(page); want_ip = (unsigned long)store_add; s += store_add((long *)(page + 64), 3);
            want_addr = (unsigned long)page;
            deny(page); want_ip = (unsigned long)copy + 3; copy(to, page - 60, 120); s += to[60];
            deny(far_page); want_addr = (unsigned long)far_page; want_ip = (unsigned long)load_rip; s += load_rip();
        }
        return s + (long)faults;
    }
    if (!strcmp(mode, "skip")) {
        if (!early) action(SIGSEGV, skip_segv);
        deny(page);
        want_ip = (unsigned long)load;
        for (long i = 0; i < count; i++) s += load((long *)page);
        return s + (long)faults;
    }
    if (!strcmp(mode, "jump")) {
        if (!early) signal(SIGSEGV, jump_segv);
        deny(page);
        for (volatile long i = 0; i < count; i++)
            if (sigsetjmp(back, 1) == 0) s += jumps_out(i); else s += 5;
        return s + (long)faults;
    }
    if (!strcmp(mode, "same")) { // each call has the registers of the one before
        if (!early) signal(SIGSEGV, jump_segv);
        deny(page);
        for (volatile long i = 0; i < count; i++)
            if (sigsetjmp(back, 1) == 0) load((long *)page); else s += 5;
        return s + (long)faults;
    }
    if (!strcmp(mode, "int3")) {
        for (long i = 0; i < count; i++) { own_int3(); s += work(i); raise(SIGTRAP); kill(getpid(), SIGTRAP); }
        return s + traps;
    }
    if (!strcmp(mode, "flag")) { // the program steps itself
        action(SIGTRAP, on_step);
        step_lo = (unsigned long)work, step_hi = step_lo + 64;
        for (long i = 0; i < count; i++) {
            __asm__ volatile("subq $128,%%rsp\n pushfq\n orq $0x100,(%%rsp)\n popfq\n movq %1,%%rdi\n call work\n addq %%rax,%0\n"
                             "pushfq\n andq $~0x100,(%%rsp)\n popfq\n addq $128,%%rsp" : "+r"(s) : "r"(i) : "rdi", "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
        }
        return s;
    }
    if (!strcmp(mode, "block")) return blocked(count);
    if (!strcmp(mode, "ignore")) {
        for (long i = 0; i < count; i++) { s += work(i); raise(SIGTRAP); }
        return s;
    }
    if (!strcmp(mode, "alt")) {
        stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
        sigaltstack(&ss, 0);
        struct sigaction a = {.sa_handler = on_usr, .sa_flags = SA_ONSTACK};
        sigaction(SIGUSR1, &a, 0);
        for (long i = 0; i < count; i++) { s += work(i); raise(SIGUSR1); }
        return s + alt_sum;
    }
    if (!strcmp(mode, "slow")) { // for SIGSTOP from outside
        for (long i = 0; i < count; i++) { s += work(i); usleep(1000); }
        return s;
    }
    fprintf(stderr, "no mode %s\n", mode);
    exit(2);
}
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    count = atol(argv[2]);
    page = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page += 4096;
    *(void (**)(void))page = nothing;
    read_text();
    if (!strcmp(argv[1], "ignore")) signal(SIGTRAP, SIG_IGN);
    if (!strcmp(argv[1], "block") || !strcmp(argv[1], "int3")) action(SIGTRAP, on_trap);
    early = argc > 3;
    if (early && !strcmp(argv[1], "repair")) action(SIGSEGV, on_segv);
    if (early && !strcmp(argv[1], "skip")) action(SIGSEGV, skip_segv);
    if (early && (!strcmp(argv[1], "jump") || !strcmp(argv[1], "same"))) signal(SIGSEGV, jump_segv);
    char line[64];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long s = run(argv[1]);
    if (!strcmp(argv[1], "repair")) s &= 0xff; // an address is part of it
    printf("done %ld bad %ld\n", s, bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
