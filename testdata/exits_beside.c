// Functions that return by instructions of one byte that lie side by side and are each led
// to by itself, or have one to three bytes of padding behind them. Each gives three times
// its argument and one. Usage: exits_beside ROUNDS THREADS; as probe_calls otherwise.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNC(name, body) \
    __asm__(".text\n.p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n" body ".size " name ", .-" name "\n.p2align 4, 0x90\n");

// Three returns in a row, and padding behind the last.
FUNC("three", "lea 1(%rdi,%rdi,2), %rax\ntest $3, %dil\njz 1f\ntest $1, %dil\njz 2f\njmp 3f\n.byte 0x0f, 0x1f, 0\n1: ret\n2: ret\n3: ret\n")
// A return before another whose instructions it has no room for, as in memchr.
FUNC("before", "lea 1(%rdi,%rdi,2), %rcx\nmov %rcx, %rax\ntest $1, %dil\njz 4f\ntest $2, %dil\njz 5f\nmov %rcx, %rax\n4: ret\n5: mov %ecx, %eax\nret\n.byte 0x66, 0x90\n")
// A return with padding of three bytes between two that are led to, as where a thread's
// number is made when it is asked for.
FUNC("padded", "lea 1(%rdi,%rdi,2), %rax\ncmp $7, %rdi\nje 7f\n6: ret\n.byte 0x0f, 0x1f, 0\n7: test %rax, %rax\njg 6b\nud2\n")

long three(long), before(long), padded(long);

static long rounds;

static void *works(void *arg)
{
    long *sum = arg;
    for (long i = 0; i < rounds; i++)
        *sum += three(i) + before(i) + padded(i % 10);
    return 0;
}

int main(int argc, char **argv)
{
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin))
        return 3;
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    pthread_t t[64];
    long sums[64] = {0}, sum = 0;
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], 0, works, &sums[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i];
    }
    printf("done %ld\n", sum);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 7;
}
