// Functions each of which can be patched in another way, called all the time from "ready"
// on until a line comes. Then it prints "done BAD", how many results were wrong, and ends
// with status 7 at a further line. SIGUSR1 counts, and looks whether it has found the
// program in its own code: if not, that is a wrong result, too. SIGUSR2's handler waits
// in pause() until SIGHUP comes.
#define _GNU_SOURCE
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

#define BODY "xorl %eax,%eax\n 1: incl %eax\n 2: .byte 0x05,0,0,0,0\n decq %rdi\n jz 3f\n btq $1,%rdi\n jc 1b\n jmp 2b\n 3: "
#define FAR ".rept 20\n movabsq $0x1122334455667788,%rcx\n .endr\n"
#define FN(name, body) ".globl " name "\n.type " name ",@function\n" name ": " body "ret\n.size " name ",.-" name "\n"
#define ONE "xorl %eax,%eax\n 1: stc\n 2: .byte 0x68,0,0,0,0\n popq %rcx\n adcl $0,%eax\n decq %rdi\n jz 3f\n btq $1,%rdi\n jc 1b\n jmp 2b\n 3: "
// Short instructions that nothing leads into the midst of.
#define WINDOW "xorl %eax,%eax\n 1: incl %eax\n pushq %rdi\n popq %rcx\n xchgq %rcx,%rdi\n decq %rdi\n jnz 1b\n "
// One of five bytes.
#define SINGLE "xorl %eax,%eax\n 1: .byte 0x05,1,0,0,0\n decq %rdi\n jnz 1b\n "
// Four bytes, and then a branch's target.
#define FOUR "xorl %eax,%eax\n 1: leaq 1(%rax),%rax\n 2: btq $1,%rdi\n decq %rdi\n jz 3f\n jc 1b\n jmp 2b\n 3: "
// Its last instructions are shorter than a jump, and padding follows.
#define TAIL "xorl %eax,%eax\n testq %rdi,%rdi\n jz 2f\n 1: incl %eax\n decq %rdi\n jnz 1b\n 2: movl %eax,%eax\n "
long padded(long), holed(long), punned(long), window(long), single(long), four(long), tail(long);
__asm__(".text\n.p2align 4\n" FN("padded", BODY) ".fill 32,1,0xcc\n.p2align 4\n" FN("holed", FAR BODY FAR FAR) FN("punned", ONE FAR FAR)
        ".p2align 4\n" FN("window", WINDOW) ".p2align 4\n" FN("single", SINGLE) ".p2align 4\n" FN("four", FOUR FAR) ".p2align 4\n" FN("tail", TAIL)
        ".fill 32,1,0xcc\n.p2align 4\n");

static struct { unsigned long lo, hi; } text[64];
static int texts;
static volatile long bad, signals;
static int note(struct dl_phdr_info *info, size_t n, void *arg) {
    (void)n; (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X && texts < 64) {
            text[texts].lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text[texts].hi = text[texts].lo + info->dlpi_phdr[i].p_memsz;
            texts++;
        }
    return 0;
}
static void on_usr1(int sig, siginfo_t *si, void *ctx) {
    (void)sig; (void)si;
    unsigned long ip = (unsigned long)((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    int i = 0;
    while (i < texts && !(ip >= text[i].lo && ip < text[i].hi)) i++;
    bad += i == texts;
    signals++;
}
static void on_usr2(int sig) { (void)sig; pause(); }
static void on_hup(int sig) { (void)sig; }
static long steps(long n) { // how often they come by label 1
    long a = 1;
    while (--n > 0) a += n >> 1 & 1;
    return a;
}
static long before(long n) { // the same, where the bit is looked at before it is counted down
    long a = 0;
    for (int by = 1;; n--) { a += by; by = n >> 1 & 1; if (n == 1) return a; }
}
int main(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    char line[16];
    dl_iterate_phdr(note, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO | SA_RESTART}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_usr2, .sa_flags = SA_RESTART}, NULL);
    sigaction(SIGHUP, &(struct sigaction){.sa_handler = on_hup}, NULL);
    puts("ready"); fflush(stdout);
    while (poll(&in, 1, 0) <= 0)
        for (long n = 1; n < 40; n++)
            bad += (padded(n) != steps(n)) + (holed(n) != steps(n)) + (punned(n) != steps(n)) + (window(n) != n) + (single(n) != n) +
                   (four(n) != before(n)) + (tail(n) != n);
    if (!fgets(line, sizeof line, stdin)) return 3;
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
