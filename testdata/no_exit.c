// A function that falls into the next, so that nobody knows where it is left, and one
// that jumps to it. It prints "ready", calls them until a line comes, prints
// "done BAD", how many results were wrong, and ends with status 7 at a further line.
#include <poll.h>
#include <stdio.h>

long falls(long), jumps(long);
__asm__(".text\n.p2align 4\n"
        ".globl falls\n.type falls,@function\nfalls: movl $1,%eax\n leaq (%rdi,%rax,2),%rax\n imulq $3,%rax,%rax\n.size falls,.-falls\n"
        ".globl lands\n.type lands,@function\nlands: addq $5,%rax\n ret\n.size lands,.-lands\n"
        ".p2align 4\n.globl jumps\n.type jumps,@function\njumps: leaq 7(%rdi),%rdi\n imulq $5,%rdi,%rdi\n jmp falls\n.size jumps,.-jumps\n");

int main(void) {
    struct pollfd in = {0, POLLIN, 0};
    char line[16];
    long bad = 0;
    puts("ready"); fflush(stdout);
    while (poll(&in, 1, 0) <= 0)
        for (long n = 0; n < 100; n++) bad += (falls(n) != (n + 2) * 3 + 5) + (jumps(n) != ((n + 7) * 5 + 2) * 3 + 5);
    if (!fgets(line, sizeof line, stdin)) return 3;
    printf("done %ld\n", bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
