// Functions whose first bytes are hard to replace by a jump: what branches into
// them, what falls over a page, what reads where it is. Usage:
// hazard_text COUNT [spin THREADS | stale]. It prints "ready"; each line is
// a round, after which it prints "done SUM"; at "q" it ends with status 7.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define FN(name, body) ".globl " name "\n.type " name ",@function\n" name ": " body "\n.size " name ",.-" name "\n"
#define AT_PAGE_END(name, n) ".p2align 12\n.fill 4096-" #n ",1,0xcc\n" FN(name, "movl $" #n ",%eax\n leaq (%rax,%rdi),%rax\n ret")
#define WINDOW_AT_PAGE_END(name, n) ".p2align 12\n.fill 4096-" #n ",1,0xcc\n" FN(name, "pushq %rbx\n pushq %rdi\n popq %rbx\n leaq 1(%rbx),%rax\n popq %rbx\n ret")
typedef long fn(long);
fn back_edge, split, inner_target, padded, spin, pc_thunk, flags_loop, counted, prefixes, page1, page2, page3, page4, pagew1, pagew2, pagew3, pagew4;
extern char spin_end[];
__asm__(".text\n.p2align 4\n"
        // A loop to the second instruction, one byte in.
        FN("back_edge", "pushq %rbx\n1: incq %rdi\n testb $7,%dil\n jnz 1b\n leaq (%rdi,%rdi),%rax\n popq %rbx\n ret")
        // A cold part elsewhere that comes back three bytes in.
        FN("split", "testq %rdi,%rdi\n jns split_cold\nsplit_back: pushq %rdi\n popq %rax\n addq $3,%rax\n ret")
        ".section .text.unlikely,\"ax\",@progbits\n.type split_cold,@function\nsplit_cold: addq $100,%rdi\n testb $1,%dil\n jz split_back+0\n incq %rdi\n jmp split_back\n.size split_cold,.-split_cold\n.text\n"
        // An address in a table, two bytes in.
        FN("inner_target", "pushq %rdi\n popq %rax\nin_mid: incq %rax\n incq %rax\n testb $2,%al\n jz 1f\n jmp *inner_table(%rip)\n1: ret")
        ".data\n.globl inner_table\ninner_table: .quad in_mid\n.text\n"
        // A table, as Go's compiler reads it, that leads to no-ops behind returns.
        FN("padded", "movq %rdi,%rax\n andl $3,%eax\n cmpq $2,%rax\n ja 9f\n leaq padded_table(%rip),%rcx\n nop\n jmp *(%rcx,%rax,8)\npad1: leaq 1(%rdi),%rax\n ret\n"
           "pad2: .byte 0x66,0x90,0x66,0x90\n leaq 2(%rdi),%rax\n ret\npad3: .byte 0x66,0x90,0x66,0x90\n nop\n leaq 3(%rdi),%rax\n ret\n nopl 0(%rax)\n9: movq %rdi,%rax\n ret")
        ".section .data.rel.ro,\"aw\"\n.p2align 3\npadded_table: .quad pad1,pad2,pad3\n.text\n"
        // rdi rounds within five one-byte instructions and a branch.
        ".p2align 4\n" FN("spin", "pushq %rdi\n popq %rdi\n cmc\n cmc\n nop\n decq %rdi\n jnz spin\nspin_end: xorl %eax,%eax\n ret")
        FN("pc_thunk", "call 1f\n1: popq %rax\n leaq 1b(%rip),%rcx\n subq %rcx,%rax\n addq %rdi,%rax\n ret")
        FN("flags_loop", "xorl %eax,%eax\n movq $5,%rcx\n1: addq %rdi,%rax\n cmpq $2,%rcx\n loopne 1b\n jrcxz 2f\n addq %rcx,%rax\n2: ret")
        FN("counted", "movl %edi,%ecx\n andl $3,%ecx\n xorl %eax,%eax\n jecxz 3f\n1: incl %eax\n loop 1b\n3: ret")
        FN("prefixes", "movq %rdi,%rax\n lock xaddq %rax,cell(%rip)\n lock subq %rdi,cell(%rip)\n movq %fs:0,%rcx\n subq %fs:0,%rcx\n addw $1,cell+8(%rip)\n repe cmpsb\n addq %rcx,%rax\n ret")
        ".data\n.p2align 4\ncell: .quad 17,0\n.text\n"
        AT_PAGE_END("page1", 1) AT_PAGE_END("page2", 2) AT_PAGE_END("page3", 3) AT_PAGE_END("page4", 4)
        WINDOW_AT_PAGE_END("pagew1", 1) WINDOW_AT_PAGE_END("pagew2", 2) WINDOW_AT_PAGE_END("pagew3", 3) WINDOW_AT_PAGE_END("pagew4", 4)
        ".p2align 4\n");

// Small cases close together.
NOINLINE long cases(long n) {
    switch (n & 15) {
    case 0: return 7; case 1: n++; case 2: n++; case 3: n++; case 4: n++; case 5: return n; case 6: n = -n; case 7: n--; case 8: n--;
    case 9: return n * 3; case 10: n ^= 9; case 11: n++; case 12: return n; case 13: n += 5; case 14: n--; default: return n + 1;
    }
}
// An interpreter by computed goto.
NOINLINE long interpret(const char *p, long a) {
    static void *const ops[] = {&&add, &&neg, &&twice, &&dec, &&end};
    goto *ops[(unsigned char)*p++];
add: a += 3; goto *ops[(unsigned char)*p++];
neg: a = -a; goto *ops[(unsigned char)*p++];
twice: a *= 2; goto *ops[(unsigned char)*p++];
dec: a--; goto *ops[(unsigned char)*p++];
end: return a;
}
NOINLINE long program(long n) {
    char p[6];
    for (int i = 0; i < 5; i++) p[i] = (char)((n >> i) & 3);
    p[5] = 4;
    return interpret(p, n);
}
NOINLINE long forever(long n) { while (1) { if (n++ > 5) return n; } }
NOINLINE long caller(long n) { __asm__ volatile(""); return (long)__builtin_return_address(0) != 0 ? n : -1; }

static long count;
static fn *const all[] = {back_edge, split, inner_target, padded, pc_thunk, flags_loop, counted, page1, page2, page3, page4,
                          pagew1, pagew2, pagew3, pagew4, cases, program, forever, caller};
static long round_of_work(void) {
    unsigned long s = 0;
    for (long i = 0; i < count; i++)
        for (unsigned k = 0; k < sizeof all / sizeof *all; k++) s = s * 31 + (unsigned long)all[k](i);
    // cmpsb of a text with itself, from what rsi and rdi are.
    for (long i = 0; i < count; i++) { long r; __asm__ volatile("movq %1,%%rdi\n movq %1,%%rsi\n xorl %%ecx,%%ecx\n subq $128,%%rsp\n call prefixes\n addq $128,%%rsp\n subq %%rdi,%%rax\n addq %%rsi,%%rax" : "=&a"(r) : "r"(all) : "rdi", "rsi", "rcx", "memory", "cc"); s = s * 31 + (unsigned long)(r == 17); }
    return (long)s;
}
static void *spinner(void *n) { spin((long)n); return 0; }
static long spins(int threads) {
    pthread_t t[64];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, spinner, (void *)count);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    return count * threads;
}
// stale: a handler that has interrupted spin between its first instructions
// says so, once, and waits for a line.
static volatile int held;
static void on_usr(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    greg_t *r = ((ucontext_t *)ctx)->uc_mcontext.gregs;
    long off = r[REG_RIP] - (long)spin;
    if (held || off < 1 || off > 4) return;
    held = 1;
    char b;
    dprintf(1, "inside %ld\n", off);
    if (read(0, &b, 1) != 1) abort();
    r[REG_RDI] = (off == 1 ? 3 : 3); // rounds left
    if (off == 1) *(long *)r[REG_RSP] = 3;
}
static void *pester(void *arg) {
    pthread_t t = *(pthread_t *)arg;
    while (!held) { pthread_kill(t, SIGUSR1); usleep(200); }
    return 0;
}
int main(int argc, char **argv) {
    char line[64];
    count = argc > 1 ? atol(argv[1]) : 1;
    puts("ready"); fflush(stdout);
    setvbuf(stdin, 0, _IONBF, 0);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        if (argc > 3) printf("done %ld\n", spins(atoi(argv[3])));
        else if (argc > 2) {
            struct sigaction a = {.sa_sigaction = on_usr, .sa_flags = SA_SIGINFO | SA_RESTART};
            sigaction(SIGUSR1, &a, 0);
            pthread_t self = pthread_self(), t;
            held = 0;
            pthread_create(&t, 0, pester, &self);
            spin(1l << 60);
            pthread_join(t, 0);
            puts("done");
        } else printf("done %ld\n", round_of_work());
        fflush(stdout);
    }
    return line[0] == 'q' ? 7 : 3;
}
