// A function that overwrites the status flags some instructions behind its entry. It is called N times (the argument)
// with all of them set.
#include <stdio.h>
#include <stdlib.h>

__asm__(".text\n"
        ".globl work\n.type work, @function\n.p2align 6\n"
        "work: lea 0x12345(%rdi), %rax\n" // 7 bytes, the flags stay
        "      mov %rax, %rcx\n"
        ".globl inner\n.type inner, @function\n"
        "inner: nopl 0(%rax)\n" // a function in the function
        "      xor %rsi, %rax\n" // all of them anew
        "      xor %rsi, %rax\n"
        "      ret\n"
        ".size work, . - work\n.size inner, . - inner\n");
long work(long n, long mask);

static long flagged(long n) {
    long out;
    __asm__ volatile("sub $128, %%rsp\n pushf\n orq $0x8d5, (%%rsp)\n popf\n lea 128(%%rsp), %%rsp\n"
                     "lea -128(%%rsp), %%rsp\n call work\n lea 128(%%rsp), %%rsp\n"
                     : "=a"(out) : "D"(n), "S"(0x5555L) : "rcx", "rdx", "r8", "r9", "r10", "r11", "cc", "memory");
    return out;
}

int main(int argc, char **argv) {
    char line[16];
    long n = argc > 1 ? atol(argv[1]) : 1000;
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        long sum = 0;
        for (long i = 0; i < n; i++) sum += flagged(i);
        printf("done %ld\n", sum); fflush(stdout);
    }
    return 7;
}
