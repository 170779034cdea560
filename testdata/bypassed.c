// Functions that return by an instruction of one byte to which branches lead, right before the
// start of the next function, so that there is no room for a jump. Each gives three times its
// argument and one. Usage: bypassed ROUNDS THREADS; as probe_calls otherwise. A timer's signals
// interrupt the threads, and each 64th call of stray comes to that return by its address.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define FUNC(name, body) ".globl " name "\n.type " name ", @function\n" name ":\n" body ".size " name ", .-" name "\n"

__asm__(".text\n.p2align 4\n"
    // Only branches lead to the return: behind a jump.
    FUNC("led", "jmp 3f\n0: lea 1(%rdi,%rdi,2), %rax\nret\n3: lea 1(%rdi,%rdi,2), %rax\ntest $3, %dil\njz 1f\ntest $1, %dil\njz 1f\nmov %rax, %rcx\nmov %rcx, %rax\njmp 0b\n1: ret\n")
    // The start of the next, which is probed, too.
    FUNC("onward", "mov %rdi, %rax\nlea 1(%rax,%rax,2), %rax\nret\n")
    // Control falls into the return, too, and a branch comes from behind it.
    FUNC("falls", "lea 1(%rdi,%rdi,2), %rcx\ntest $3, %dil\njz 2f\nmov %rcx, %rax\ntest $1, %dil\njz 1f\nmov %rcx, %rax\n1: ret\n.long 0\n2: lea (%rcx), %rax\njmp 1b\n")
    FUNC("last", "mov %rdi, %rax\nlea 1(%rax,%rax,2), %rax\nret\n.p2align 4, 0x90\n"));

long led(long), onward(long), falls(long), last(long);

// stray returns by the return of led.
__asm__(".text\n.p2align 4\n" FUNC("stray", "lea 1(%rdi,%rdi,2), %rax\nlea onward(%rip), %rcx\ndec %rcx\npush %rcx\nret\n"));
long stray(long);

static long rounds;

static void nothing(int sig) { (void)sig; }

static void *works(void *arg)
{
    long *sum = arg;
    for (long i = 0; i < rounds; i++)
        *sum += led(i) + onward(i) + falls(i) + last(i) + (i % 64 ? 0 : stray(i));
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
    struct sigaction sa = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, 0);
    struct itimerval every = {{0, 200}, {0, 200}}, never = {{0}};
    setitimer(ITIMER_REAL, &every, 0);
    pthread_t t[64];
    long sums[64] = {0}, sum = 0;
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], 0, works, &sums[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i];
    }
    setitimer(ITIMER_REAL, &never, 0);
    printf("done %ld\n", sum);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 7;
}
