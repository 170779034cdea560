// Functions of which an instruction leaves room for a short jump only: all of its
// neighbours are led to by branches, and what follows it makes displacements that
// lead into the program. The short jump's own goes to padding in the first, to an
// instruction that gives way in the second. In the third the instruction is a single
// byte: the displacement is what follows, and leads to such an instruction. The program
// calls them all the time from "ready" on until a line comes, prints "done BAD",
// how many results were wrong, and ends with status 7 at a further line.
#include <poll.h>
#include <stdio.h>

#define BODY "xorl %eax,%eax\n 1: incl %eax\n 2: .byte 0x05,0,0,0,0\n decq %rdi\n jz 3f\n btq $1,%rdi\n jc 1b\n jmp 2b\n 3: "
#define FAR ".rept 20\n movabsq $0x1122334455667788,%rcx\n .endr\n"
#define FN(name, body) ".globl " name "\n.type " name ",@function\n" name ": " body "ret\n.size " name ",.-" name "\n"
#define ONE "xorl %eax,%eax\n 1: stc\n 2: .byte 0x68,0,0,0,0\n popq %rcx\n adcl $0,%eax\n decq %rdi\n jz 3f\n btq $1,%rdi\n jc 1b\n jmp 2b\n 3: "
long padded(long), holed(long), punned(long);
__asm__(".text\n.p2align 4\n" FN("padded", BODY) ".fill 32,1,0xcc\n.p2align 4\n" FN("holed", FAR BODY FAR FAR) FN("punned", ONE FAR FAR));

static long expected(long n) {
    long a = 1;
    while (--n) if (n >> 1 & 1) a++;
    return a;
}
int main(void) {
    struct pollfd in = {0, POLLIN, 0};
    long bad = 0;
    char line[16];
    puts("ready"); fflush(stdout);
    while (!poll(&in, 1, 0))
        for (long n = 1; n < 200; n++) bad += (padded(n) != expected(n)) + (holed(n) != expected(n)) + (punned(n) != expected(n));
    if (!fgets(line, sizeof line, stdin)) return 3;
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
