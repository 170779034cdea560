// Functions that end in a jump through a pointer: to code made at run time, which takes
// arguments off the stack or leaves the call, and to functions of the C library. Usage:
// probe_landings ROUNDS THREADS [made]. With made, code made at run time calls such a function, too. As probe_calls it prints "ready", waits for a line, works,
// prints "done SUM STOPS", where STOPS is how often its threads have waited, and ends after
// another line.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#define FUNC extern "C" __attribute__((noinline, noclone))

typedef long (*op)(long);
static volatile long sunk;

#define F(n) FUNC long hop_##n(long x, op to) { sunk = n; return to(x); }
#define F10(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
F10(1) F10(2) F10(3) F10(4)
FUNC long twice(long x, op to) { sunk = 1; return hop_10(x, to); }

// Jumps to a function, which jumps to another. Nobody probes it.
FUNC long carried(long x) { sunk = x; return x + 3; }
FUNC long carries(long x) { sunk = 2; return carried(x + 1); }
FUNC long via(long x) { sunk = 3; return carries(x + 1); }

// Calls twice, with two words of arguments on the stack that the callee takes off.
extern "C" long Builtins_pushes(long x, op to);
// Calls hop_11, which is left behind: to jumps to r8 with the stack as it was.
extern "C" long Builtins_leaves(long x, op to);
// Calls a function that jumps, without arguments on the stack.
extern "C" long plainly(long x, op to, long (*hop)(long, op));
asm(R"(
	.text
	.type Builtins_pushes, @function
	.globl Builtins_pushes
Builtins_pushes:
	push %rbp
	mov %rsp, %rbp
	push $1
	push $2
	call twice
	mov %rbp, %rsp
	pop %rbp
	ret
	.size Builtins_pushes, .-Builtins_pushes
	.type Builtins_leaves, @function
	.globl Builtins_leaves
Builtins_leaves:
	push %rbp
	mov %rsp, %rbp
	push $1
	push $2
	lea 1f(%rip), %r8
	call hop_11
	mov %rbp, %rsp
	pop %rbp
	ret
1:	xor %eax, %eax
	mov %rbp, %rsp
	pop %rbp
	ret
	.size Builtins_leaves, .-Builtins_leaves
	.type plainly, @function
	.globl plainly
plainly:
	sub $8, %rsp
	call *%rdx
	add $8, %rsp
	ret
	.size plainly, .-plainly
)");

static unsigned char *made; // adds, pops, leaves, calls
static long rounds;
static bool calling;

static void *works(void *arg) {
    long *sums = (long *)arg;
    op adds = (op)made, pops = (op)(made + 16), leaves = (op)(made + 32);
    for (long i = 0; i < rounds; i++) {
        sums[0] += Builtins_pushes(i, pops);
        sums[0] += Builtins_leaves(i, i % 3 ? pops : leaves);
        sums[0] += plainly(i, adds, hop_12);
        sums[0] += plainly(-i, labs, hop_13);
        sums[0] += plainly(i, via, hop_14);
        if (calling) sums[0] += ((long (*)(long, op, long (*)(long, op)))(made + 48))(i, adds, hop_15);
    }
    struct rusage use;
    getrusage(RUSAGE_THREAD, &use);
    sums[1] = use.ru_nvcsw;
    return 0;
}

int main(int argc, char **argv) {
    char line[64];
    made = (unsigned char *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, "\x48\x8d\x47\x01\xc3", 5);              // lea 1(%rdi), %rax; ret
    memcpy(made + 16, "\x48\x8d\x47\x02\xc2\x10\x00", 7); // lea 2(%rdi), %rax; ret $16
    memcpy(made + 32, "\x48\x83\xc4\x08\x41\xff\xe0", 7); // add $8, %rsp; jmp *%r8
    memcpy(made + 48, "\x48\x83\xec\x08\xff\xd2\x48\x83\xc4\x08\xc3", 11); // sub $8, %rsp; call *%rdx; add $8, %rsp; ret
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    calling = argc > 3;
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin)) return 3;
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    try { // the program has an unwinder: its stacks are left alone
        if (threads > 64) throw threads;
    } catch (int) {
        return 5;
    }
    pthread_t t[64];
    long sums[64][2] = {};
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, works, sums[i]);
    long sum = 0, stops = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i][0], stops += sums[i][1];
    }
    munmap(made, 4096);
    printf("done %ld %ld\n", sum, stops);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
