// Functions of which some calls end in an outer one, as those that deliver exceptions do, and
// functions with switches that lead to another part. Each of ROUNDS calls in each of THREADS threads
// gives three times its argument and one. Usage: exits_outer ROUNDS THREADS; as probe_calls
// otherwise. It also prints how often its threads waited, which they do when they are stopped.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define FUNC(name, body) \
    __asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n" body ".size " name ", .-" name "\n");
#define ALIGN __asm__(".skip 32, 0xcc\n.p2align 4, 0xcc\n");
#define RESULT "lea 1(%rdi,%rdi,2), %rax\n"

// DELIVERS makes deliver_WAY(x, to, sp), which returns if x is even, and else ends in the call that
// has the stack pointer sp, at the address to. outer_WAY calls it, through between_WAY or directly.
#define DELIVERS(way, body) \
    ALIGN FUNC("deliver_" way, body) \
    ALIGN FUNC("between_" way, "sub $24, %rsp\ncall deliver_" way "\nadd $24, %rsp\nret\n") \
    ALIGN FUNC("outer_" way, "push %rbx\nmov %rdi, %rbx\nlea 2f(%rip), %rsi\nmov %rsp, %rdx\ntest $2, %dil\njz 1f\n" \
        "call between_" way "\nnop\npop %rbx\nret\n1: call deliver_" way "\nnop\npop %rbx\nret\n" \
        "2: mov %rbx, %rdi\n" RESULT "pop %rbx\nret\n")
#define FRAME(leave) "push %rbp\nmov %rsp, %rbp\ntest $1, %dil\njnz 1f\n" RESULT "leave\nret\n" \
    "1: lea -8(%rdx), %rcx\nmov %rsi, (%rcx)\nmov (%rbp), %rbp\nmov %rcx, %rsp\n" leave
#define NO_FRAME(leave) "push %rbx\ntest $1, %dil\njnz 1f\n" RESULT "pop %rbx\nret\n" \
    "1: lea -8(%rdx), %rcx\nmov %rsi, (%rcx)\nsub %rsp, %rcx\nmov (%rsp), %rbx\nlea (%rsp,%rcx), %rsp\n" leave
DELIVERS("jump", FRAME("pop %rcx\njmp *%rcx\n"))
DELIVERS("ret", FRAME("ret\n"))
DELIVERS("lea_jump", NO_FRAME("pop %rcx\njmp *%rcx\n"))
DELIVERS("lea_ret", NO_FRAME("ret\n"))

// SWITCHES makes a function with a switch whose values 3 and above lead to its cold parts, to one of them only
// by the table. Its last return has no room for a jump, so what leads there must be known: the function
// beside it starts right behind.
#define SWITCHES(name, base, far) \
    ALIGN FUNC(name, RESULT "test $3, %dil\n{disp32} jz 7f\npush %rbx\n" far "mov %edi, %ecx\nand $7, %ecx\ncmp $7, %ecx\nja " name ".cold\n" \
        "movslq (%" base ",%rcx,4), %rcx\nadd %" base ", %rcx\njmp *%rcx\n1: pop %rbx\nret\n2: mov %rax, %rcx\nmov %rcx, %rax\njmp 1b\n7: ret\n" \
        ".pushsection .rodata\n" name "_table: .long 1b-" name "_table, 2b-" name "_table, 1b-" name "_table\n" \
        ".long " name "_part-" name "_table, " name "_part-" name "_table, " name "_part-" name "_table\n" \
        ".long " name "_last-" name "_table, " name ".cold-" name "_table\n.popsection\n") \
    FUNC("beside_" name, RESULT "mov %rax, %rcx\nmov %rcx, %rax\nret\n") \
    __asm__(".section .text.unlikely,\"ax\"\n.type " name ".cold, @function\n" name ".cold: nop\n" name "_part: " RESULT "pop %rbx\nret\n" \
        ".size " name ".cold, .-" name ".cold\n.type " name ".cold.1, @function\n" name ".cold.1: nop\n" \
        name "_last: pop %rbx\n" RESULT "mov %rax, %rcx\nmov %rcx, %rax\nret\n.size " name ".cold.1, .-" name ".cold.1\n.text\n");
ALIGN FUNC("nothing", "nop\nret\n")
SWITCHES("nearby", "rdx", "lea nearby_table(%rip), %rdx\n")
SWITCHES("hoisted", "rbx", "lea hoisted_table(%rip), %rbx\ncall nothing\n")
ALIGN

extern "C" {
long outer_jump(long), outer_ret(long), outer_lea_jump(long), outer_lea_ret(long);
long nearby(long), hoisted(long), beside_nearby(long), beside_hoisted(long);
volatile long sunk;
}

// Functions that nobody calls: with many return probes calls are noted in one table.
#define FILL(n) extern "C" __attribute__((noinline, used)) long fill_##n(long x) { sunk = x; return x + n; }
#define FILLS(n) FILL(n##0) FILL(n##1) FILL(n##2) FILL(n##3) FILL(n##4) FILL(n##5) FILL(n##6) FILL(n##7)
FILLS(1) FILLS(2) FILLS(3) FILLS(4) FILLS(5)

static long rounds;

static long (*const all[])(long) = {
    outer_jump, outer_ret, outer_lea_jump, outer_lea_ret, nearby, hoisted, beside_nearby, beside_hoisted,
};

static void *works(void *arg)
{
    long *sum = (long *)arg;
    for (long i = 0; i < rounds; i++)
        for (auto f : all)
            *sum += f(i);
    return 0;
}

static long waits()
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
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
    long sums[64] = {0}, sum = 0, before = waits();
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], 0, works, &sums[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i];
    }
    printf("done %ld %ld\n", sum, waits() - before);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 7;
}
