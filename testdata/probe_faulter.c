// A program whose probed instruction faults. After a line on standard input it
// loads 100 times from a good address, 100 times from address 8, of which a
// tracer is to make the good one in the second argument, and 100 times from
// address 16, each time with another second argument, which its own handler
// leaves by siglongjmp. It prints "done SUM CAUGHT", SUM over the loads from 8.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static sigjmp_buf back;
static void caught(int sig) { (void)sig; siglongjmp(back, 1); }

long load(const long *p, const long *good);
__asm__(".text\n.globl load\n.type load,@function\nload:\n\tmovq (%rdi),%rax\n\tret\n.size load,.-load\n");

int main(void) {
    char line[64];
    volatile long sum = 0, n = 0, good = 42;
    struct sigaction a = {.sa_handler = caught};
    sigaction(SIGSEGV, &a, 0);
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    for (int i = 0; i < 100; i++) if (load((const long *)&good, 0) != 42) return 5;
    for (int i = 0; i < 100; i++) sum += load((const long *)8, (const long *)&good);
    for (volatile int i = 0; i < 100; i++) if (sigsetjmp(back, 1) == 0) load((const long *)16, (const long *)(long)i); else n++;
    printf("done %ld %ld\n", sum, n); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
