// Functions that are left in all the ways there are, in threads. Usage: probe_exits COUNT THREADS [REPEAT]
// As probe_unwind it prints "ready", waits for a line, works, prints "done …" and ends with status 7 after another line. What it prints
// doesn't depend on who watches: for each function how often it returned, and a sum over its arguments and values.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define F extern "C" __attribute__((noinline, noclone)) long
#define KEEP __asm__ volatile("" ::: "memory")
enum { SW, COLDY, TA, TB, TC, THR, NEST, DEEP, HSIG, RAISER, LEAVER, CO, BT, FORKER, ENDED, ALL };
static const char *names[] = {"sw", "coldy", "ta", "tb", "tc", "thr", "nest", "deep", "hsig", "raiser", "leaver", "co", "bt", "forker", "ended"};
struct tally { long n, sum; };
static struct tally total[ALL];
static void count(int f, long a, long v) {
    __atomic_fetch_add(&total[f].n, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&total[f].sum, v ^ (a * 7), __ATOMIC_RELAXED);
}
#define CALL(id, f, arg) ({ long a_ = (arg); long v_ = f(a_); count(id, a_, v_); v_; })

static volatile long sink;
__attribute__((noinline, cold)) static void rare(long n) { sink += n; }
F sw(long n) {
    switch (n & 15) {
    case 0: sink = n; return n + 1;
    case 1: sink = 2; return n * 3;
    case 2: return n ^ 0x1234;
    case 3: sink = 4; sink = 5; return ~n;
    case 4: for (int i = 0; i < 3; i++) { KEEP; sink = i; } return -n;
    case 5: return n << 3;
    case 6: return sink ? n : n;
    case 7: sink = 8; return n - 77;
    case 8: return n | 5;
    case 9: sink = 9; return n & ~6;
    case 10: return n * n;
    case 11: sink = 1; return 11;
    case 12: return n >> 1;
    case 13: sink = 13; return 2 * n + 13;
    default: sink = 15; return 0;
    }
}
F coldy(long n) { if (__builtin_expect(n % 7 == 0, 0)) { rare(n); rare(n + 1); return n * 5; } KEEP; return n + 1; }
// What isn't reached behind its rare part is a jump to its end, as gcc writes for
// __builtin_unreachable: padding, which no function is known at.
extern "C" long ended(long n);
__asm__(".text\n.p2align 4\n.globl ended\n.type ended, @function\nended: .cfi_startproc\n"
        "cmp $-5, %rdi\n.byte 0x0f, 0x8c\n.long 2f - . - 4\nlea 6(%rdi), %rax\nret\n"
        "1: .cfi_endproc\n.size ended, . - ended\n.p2align 4\n"
        ".section .text.unlikely, \"ax\", @progbits\n2: .cfi_startproc\ncall abort@plt\njmp 1b\n.cfi_endproc\n.text\n");
F tc(long n) { KEEP; count(TC, n, n ^ 0x55); return n ^ 0x55; }
F tb(long n) { count(TB, n, n & 2 ? (n * 3) ^ 0x55 : n); if (n & 2) return tc(n * 3); KEEP; return n; }
F ta(long n) { KEEP; if (n & 1) return tb(n + 1); return tc(n); }
F thr(long n) { KEEP; if (n % 3 == 0) throw n; KEEP; return n * 2; }
F nest(long n) { // n & 7 deep, throws at the bottom of every fifth
    if ((n & 7) == 0) { if (n % 5 == 0) throw std::runtime_error("bottom"); return n; }
    long r = CALL(NEST, nest, n - 1);
    KEEP;
    return r + 1;
}
static thread_local sigjmp_buf out;
F deep(long n) {
    if ((n & 7) == 0) { if (n % 5 == 0) siglongjmp(out, 1); return n; }
    long r = CALL(DEEP, deep, n - 1);
    KEEP;
    return r + 2;
}
F hsig(long n) { KEEP; return n + 3; }
static thread_local long raised;
static void handler(int) { CALL(HSIG, hsig, raised); if (raised % 4 == 0) siglongjmp(out, 2); }
F raiser(long n) { raised = n; pthread_kill(pthread_self(), SIGUSR1); KEEP; return n * 9; }
F leaver(long n) { KEEP; if (n & 1) pthread_exit((void *)n); if (n & 2) for (;;) pause(); KEEP; return n; }
static void *leaving(void *n) { return (void *)CALL(LEAVER, leaver, (long)n); }
static thread_local ucontext_t here, there[2];
F co(long n) { // leaves and comes back on its own stack
    ucontext_t *t = there, *h = &here;
    swapcontext(&t[n & 1], h);
    KEEP;
    swapcontext(&t[n & 1], h);
    KEEP;
    return n * 4;
}
static thread_local long argument[2];
static void coroutine(int which) { CALL(CO, co, argument[which]); }
F bt(long n) {
    void *at[64];
    char **s = nullptr;
    int k = backtrace(at, 64);
    KEEP;
    return k * 100 + (n & 1) + (s ? 1 : 0);
}
F forker(long n) {
    pid_t p = fork();
    if (p == 0) return -1;
    int st = 0;
    waitpid(p, &st, 0);
    return WIFEXITED(st) ? WEXITSTATUS(st) + n : -5;
}

static void round_(long i, int worker) {
    for (int k = 0; k < 16; k++) CALL(SW, sw, i + k);
    CALL(COLDY, coldy, i);
    CALL(ENDED, ended, i);
    CALL(TA, ta, i);
    try { CALL(THR, thr, i); } catch (long) {}
    try { CALL(NEST, nest, i); } catch (const std::exception &) {}
    if (sigsetjmp(out, 1) == 0) CALL(DEEP, deep, i);
    if (sigsetjmp(out, 1) == 0) CALL(RAISER, raiser, i);
    CALL(BT, bt, i);
    if (i % 8 == 0) {
        pthread_t t;
        pthread_create(&t, nullptr, leaving, (void *)(i / 8));
        if (i / 8 % 4 == 2) pthread_cancel(t);
        pthread_join(t, nullptr);
    }
    if (i % 4 == 0) {
        static thread_local char stacks[2][32768];
        for (int k = 0; k < 2; k++) {
            getcontext(&there[k]);
            there[k].uc_stack.ss_sp = stacks[k];
            there[k].uc_stack.ss_size = sizeof stacks[k];
            there[k].uc_link = &here;
            argument[k] = 2 * i + k;
            makecontext(&there[k], (void (*)())coroutine, 1, k);
        }
        for (int r = 0; r < 6; r++) swapcontext(&here, &there[r & 1]);
    }
    if (i % 50 == 0 && worker == 0) {
        long a = i, v = forker(a);
        if (v == -1) _exit(9);
        count(FORKER, a, v);
    }
}
static long rounds;
static void *run(void *worker) { for (long i = 0; i < rounds; i++) round_(i, (int)(long)worker); return nullptr; }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    struct sigaction sa = {};
    sa.sa_handler = handler;
    sigaction(SIGUSR1, &sa, nullptr);
    void *warm[4];
    backtrace(warm, 4);
    char line[64];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    pthread_t t[64];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], nullptr, run, (void *)(long)i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], nullptr);
    printf("done");
    for (int f = 0; f < ALL; f++) printf(" %s %ld %ld", names[f], total[f].n, total[f].sum);
    puts(""); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
