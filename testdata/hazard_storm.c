// Threads that call small functions and check after every call that nothing
// but what the function does has changed: general registers, flags, vector
// registers, the red zone. Usage: hazard_storm THREADS [prof]. It prints
// "ready", starts at a line, stops at the next and prints "done BAD CALLS…",
// CALLS being how often each of f0, f1, … was called; with a further line it
// ends with status 7. With prof each thread gets SIGPROF 100 µs after the last one's
// handler, which calls f0 too and looks where it found the program: however long a
// signal takes, the thread comes to something else between two.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCS 7
struct state { uint64_t g[15], flags; unsigned char v[16][64]; uint64_t k[8]; };
void checked(void (*f)(void), struct state *in, struct state *out);
void checked512(void (*f)(void), struct state *in, struct state *out);
void f0(void), f1(void), f2(void), f3(void), f4(void), f5(void), f6(void);
static void (*const funcs[FUNCS])(void) = {f0, f1, f2, f3, f4, f5, f6};
// f3 leaves this in r11.
extern const uint64_t konst;

#define FN(name, body) ".globl " name "\n.type " name ",@function\n.p2align 4\n" name ": " body "\n ret\n.size " name ",.-" name "\n"
// r(N): load or store of the Nth register, general: rax rcx rdx rbx rbp rdi r8…r15 rsi.
#define EACH(S) S(0,"rax") S(8,"rcx") S(16,"rdx") S(24,"rbx") S(32,"rbp") S(40,"rdi") S(48,"r8") S(56,"r9") S(64,"r10") S(72,"r11") S(80,"r12") S(88,"r13") S(96,"r14") S(104,"r15")
#define LOAD(o, r) "movq " #o "(%rsi),%" r "\n"
#define VECS(V) V(0) V(1) V(2) V(3) V(4) V(5) V(6) V(7) V(8) V(9) V(10) V(11) V(12) V(13) V(14) V(15)
#define YIN(n) "vmovdqu 128+64*" #n "(%rsi),%ymm" #n "\n"
#define YOUT(n) "vmovdqu %ymm" #n ",128+64*" #n "(%rax)\n"
#define ZIN(n) "vmovdqu64 128+64*" #n "(%rsi),%zmm" #n "\n"
#define ZOUT(n) "vmovdqu64 %zmm" #n ",128+64*" #n "(%rax)\n"
#define KS(K) K(0) K(1) K(2) K(3) K(4) K(5) K(6) K(7)
#define KIN(n) "kmovq 1152+8*" #n "(%rsi),%k" #n "\n"
#define KOUT(n) "kmovq %k" #n ",1152+8*" #n "(%rax)\n"
#define STORE(r, o) "movq %" r "," #o "(%rax)\n"
#define CHECKED(name, in, out) \
    ".globl " name "\n.type " name ",@function\n" name ":\n" \
    "pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n pushq %rdx\n pushq %rdi\n" \
    in EACH(LOAD) "pushq 120(%rsi)\n movq 112(%rsi),%rsi\n popfq\n call *(%rsp)\n pushfq\n pushq %rax\n movq 24(%rsp),%rax\n" \
    STORE("rcx", 8) "popq %rcx\n" STORE("rcx", 0) "popq %rcx\n" STORE("rcx", 120) \
    STORE("rdx", 16) STORE("rbx", 24) STORE("rbp", 32) STORE("rdi", 40) STORE("r8", 48) STORE("r9", 56) STORE("r10", 64) STORE("r11", 72) \
    STORE("r12", 80) STORE("r13", 88) STORE("r14", 96) STORE("r15", 104) STORE("rsi", 112) \
    out "cld\n vzeroupper\n addq $16,%rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n.size " name ",.-" name "\n"
__asm__(".text\n"
        CHECKED("checked", VECS(YIN), VECS(YOUT))
        CHECKED("checked512", VECS(ZIN) KS(KIN), VECS(ZOUT) KS(KOUT))
        // A window of one-byte instructions that lives off the stack and a flag.
        FN("f0", "pushq %rbx\n pushq %rcx\n popq %rbx\n cmc\n xchgq %rbx,%rcx\n pushq %rbx\n popq %rcx\n cmc\n popq %rbx")
        // The red zone, both ends.
        FN("f1", "movq %rdi,-8(%rsp)\n movq %rsi,-128(%rsp)\n movq %rax,-64(%rsp)\n movq $0,%rdi\n movq $1,%rsi\n movq $2,%rax\n movq -8(%rsp),%rdi\n movq -128(%rsp),%rsi\n movq -64(%rsp),%rax")
        // A branch on flags that the probed code must not have touched.
        FN("f2", "jc 1f\n stc\n cmc\n jmp 2f\n1: clc\n cmc\n2: nop")
        // An operand relative to the instruction pointer.
        FN("f3", "pushq konst(%rip)\n popq %r11")
        // A call in the middle.
        FN("f4", "pushq %rbx\n call f1\n popq %rbx")
        // A loop whose head lies within five bytes of the entry.
        FN("f5", "pushq %rcx\n pushq $3\n popq %rcx\n1: nop\n loop 1b\n popq %rcx")
        // A tail call.
        ".globl f6\n.type f6,@function\n.p2align 4\nf6: pushq %rax\n popq %rax\n jmp f3\n.size f6,.-f6\n"
        ".section .rodata\n.globl konst\nkonst: .quad 0x1122334455667788\n.text\n");

static volatile int stop;
static unsigned long calls[FUNCS], bad;
static int wide;
static __thread unsigned long mine;
static struct { unsigned long lo, hi; } text[64];
static int texts, with_prof;

static uint64_t mix(uint64_t *s) { *s ^= *s << 13; *s ^= *s >> 7; *s ^= *s << 17; return *s; }
// Flags that a program may set: carry, parity, auxiliary, zero, sign, direction, overflow, ID.
#define FLAGS 0x200cd5ul
static __thread timer_t timer;
static const struct itimerspec soon = {{0, 0}, {0, 100000}};
static void on_prof(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    unsigned long ip = ((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    int i = 0;
    while (i < texts && !(ip >= text[i].lo && ip < text[i].hi)) i++;
    if (i == texts && __atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED) < 5) dprintf(2, "a signal found the program at %#lx\n", ip);
    mine++;
    f0();
    timer_settime(timer, 0, &soon, 0); // fails when it is over
}
static void one(int f, uint64_t *seed) {
    struct state in, out;
    memset(&out, 0, sizeof out);
    for (size_t i = 0; i < sizeof in / 8; i++) ((uint64_t *)&in)[i] = mix(seed);
    in.flags = 0x202 | (in.flags & FLAGS);
    (wide ? checked512 : checked)(funcs[f], &in, &out);
    if (f == 3 || f == 6) in.g[9] = konst;
    int wrong = memcmp(in.g, out.g, sizeof in.g) || ((in.flags ^ out.flags) & FLAGS);
    for (int i = 0; i < 16; i++) wrong |= memcmp(in.v[i], out.v[i], wide ? 64 : 32);
    if (wide) wrong |= memcmp(in.k, out.k, sizeof in.k);
    if (wrong && __atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED) < 5) {
        dprintf(2, "f%d: flags %#lx, were %#lx\n", f, (long)out.flags, (long)in.flags);
        for (int i = 0; i < 15; i++) if (in.g[i] != out.g[i]) dprintf(2, "f%d: register %d is %#lx, was %#lx\n", f, i, (long)out.g[i], (long)in.g[i]);
    }
}
static void *run(void *arg) {
    uint64_t seed = 88172645463325252ull + (uintptr_t)arg;
    unsigned long n[FUNCS] = {0};
    if (with_prof) {
        struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
        ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
        if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &soon, 0)) abort();
    }
    while (!stop)
        for (int f = 0; f < FUNCS; f++) { n[f]++; one(f, &seed); }
    if (with_prof) timer_delete(timer);
    n[0] += mine;
    n[1] += n[4]; // f4 calls f1
    n[3] += n[6]; // f6 ends in f3
    for (int f = 0; f < FUNCS; f++) __atomic_add_fetch(&calls[f], n[f], __ATOMIC_RELAXED);
    return 0;
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    with_prof = argc > 2;
    pthread_t t[64];
    char line[512], perm[8];
    if (!__builtin_cpu_supports("avx")) return 77;
    wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && texts < 64 && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &text[texts].lo, &text[texts].hi, perm) == 3 && perm[2] == 'x') texts++;
    struct sigaction a = {.sa_sigaction = on_prof, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &a, 0);
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    for (long i = 0; i < n; i++) pthread_create(&t[i], 0, run, (void *)i);
    if (!fgets(line, sizeof line, stdin)) return 3;
    stop = 1;
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    printf("done %lu", bad);
    for (int f = 0; f < FUNCS; f++) printf(" %lu", calls[f]);
    puts(""); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
