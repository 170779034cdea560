// Functions that are left in odd ways. Each of ROUNDS calls in each of THREADS threads gives three
// times its argument and one. Usage: exits_odd ROUNDS THREADS; as probe_calls otherwise.
//
// -DPICKS is a library with a function that is picked when the program is linked to it.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef PICKS
extern "C" {
static long picked(long x) { return 3 * x + 1; }
static long (*pick(void))(long) { return picked; }
long picks(long x) __attribute__((ifunc("pick")));
}
#else

#define FUNC(name, body) \
    __asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n" body ".size " name ", .-" name "\n");
#define ALIGN __asm__(".p2align 4, 0xcc\n");
#define RESULT "lea 1(%rdi,%rdi,2), %rax\n"

// They run on into the next function: directly, through padding, and behind a loop's branch or a change
// of the stack pointer.
ALIGN FUNC("runs", RESULT "test $1, %dil\njz 1f\nret\n1: mov %rdi, %rcx\n")
FUNC("ran", "lea 1(%rdi), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
ALIGN FUNC("runs_far", "mov %rdi, %rcx\nmov %rcx, %rdx\n")
__asm__(".p2align 4\n");
FUNC("ran_far", "lea 1(%rdi), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
ALIGN FUNC("branches", "jmp 3f\n2: ret\n3: " RESULT "test $1, %dil\njnz 2b\n")
FUNC("branched", "lea 1(%rdi), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
ALIGN FUNC("pops", "push %rbx\nmov %rdi, %rbx\npop %rbx\n")
FUNC("popped", "lea 1(%rdi), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
// The last instruction jumps to another function, or it runs on into the next one.
ALIGN FUNC("checks", "test $1, %dil\njnz whole\n")
__asm__(".p2align 5\n");
FUNC("checked", "lea 1(%rdi), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
// They jump to others behind their first instruction.
ALIGN FUNC("whole", "mov %rdi, %rax\nlea 1(%rax), %rax\nlea (%rax,%rdi,2), %rax\nret\n")
ALIGN FUNC("most", "nop\nmov %rdi, %rax\njmp whole+3\n")
ALIGN FUNC("guarded", "endbr64\n" RESULT "ret\n")
ALIGN FUNC("unguarded", "mov %rdi, %rax\nmov %rax, %rcx\njmp guarded+4\n")
// A return of one byte before no-ops, beside a jump through a register.
ALIGN FUNC("through", RESULT "test $1, %dil\njz 4f\nlea guarded(%rip), %rcx\njmp *%rcx\n.byte 0x0f, 0x1f, 0\n4: ret\n.byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0\n")
ALIGN

extern "C" {
long runs(long), ran(long), runs_far(long), ran_far(long), branches(long), branched(long), pops(long), popped(long);
long checks(long), checked(long), whole(long), most(long), guarded(long), unguarded(long), through(long), picks(long);
volatile long sunk;
__attribute__((noinline)) long picking(long x) { sunk = x; return picks(x); }
}

// Functions that nobody calls: with many return probes calls are noted in one table.
#define FILL(n) extern "C" __attribute__((noinline, used)) long fill_##n(long x) { sunk = x; return x + n; }
#define FILLS(n) FILL(n##0) FILL(n##1) FILL(n##2) FILL(n##3) FILL(n##4) FILL(n##5) FILL(n##6) FILL(n##7)
FILLS(1) FILLS(2) FILLS(3) FILLS(4) FILLS(5)

static long rounds;

static long (*const all[])(long) = {
    runs, ran, runs_far, ran_far, branches, branched, pops, popped, checks, checked, whole, most, guarded, unguarded, through, picking,
};

// contexts goes to another context and back, through functions that return when others let them.
static long contexts(long n)
{
    static thread_local ucontext_t here, there;
    static thread_local long turns;
    char *stack = (char *)malloc(64 << 10);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = 64 << 10;
    there.uc_link = 0;
    turns = 0;
    makecontext(&there, (void (*)())+[] { for (;;) { turns++; swapcontext(&there, &here); } }, 0);
    for (long i = 0; i < n; i++)
        swapcontext(&here, &there);
    free(stack);
    return turns;
}

static void *works(void *arg)
{
    long *sum = (long *)arg;
    for (long i = 0; i < rounds; i++) {
        for (auto f : all)
            *sum += f(i);
        static thread_local jmp_buf env;
        if (_setjmp(env) == 0 && i % 2)
            longjmp(env, 1);
        *sum += syscall(SYS_getppid) > 0;
    }
    *sum += contexts(rounds);
    return 0;
}

int main(int argc, char **argv)
{
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin))
        return 3;
    try {
        throw 1;
    } catch (int) {
    }
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
#endif
