// Functions that jump to others through a pointer, those others, which are called, too, and calls that are left by
// longjmp where others of these functions are called next from the same instruction, with the same stack pointer.
// After a line on standard input as many threads as the second argument says run as many rounds as the first; then
// the program prints how many calls of each function have returned.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLED __attribute__((noinline, noclone))
enum { LEAVES = 1 << 30 };
enum { O, LEAF, ON, BOTH, LOOP, TURN, PASS, HOP, NIL, LAST, KINDS };
static volatile unsigned salt = 3;
static __thread jmp_buf out;
static _Atomic unsigned long returned[KINDS];

CALLED unsigned last(unsigned x)
{
	if (x >= LEAVES)
		longjmp(out, 1);
	return x * salt;
}

CALLED unsigned t_leaf(unsigned x)
{
	if (x >= LEAVES)
		longjmp(out, 1);
	return x + salt;
}

CALLED unsigned t_on(unsigned x)
{
	salt = 3;
	return last(x + 1);
}

CALLED unsigned t_both(unsigned x)
{
	salt = 3;
	return x & 1 ? x + salt : t_on(x + 2);
}

// They jump to their own entry. The second one ends in a jump to t_leaf through a pointer.
unsigned t_loop(unsigned x), t_turn(unsigned x);
asm(".text\n"
    ".p2align 4\n.type t_loop,@function\n"
    "t_loop: .cfi_startproc\n	mov %edi, %eax\n	shr $1, %edi\n	jnz t_loop\n	ret\n.cfi_endproc\n.size t_loop, .-t_loop\n"
    ".p2align 4\n.type t_turn,@function\n"
    "t_turn: .cfi_startproc\n	shr $1, %edi\n	jnz t_turn\n	mov taken(%rip), %rax\n	jmp *%rax\n.cfi_endproc\n.size t_turn, .-t_turn\n");

// They have one instruction: a jump to last, a jump to the one before, and a return.
unsigned t_pass(unsigned x), t_hop(unsigned x), t_nil(unsigned x);
asm(".p2align 4\n.type t_pass,@function\nt_pass: .cfi_startproc\n	jmp last\n.cfi_endproc\n.size t_pass, .-t_pass\n"
    ".p2align 4\n.type t_hop,@function\nt_hop: .cfi_startproc\n	jmp t_pass\n.cfi_endproc\n.size t_hop, .-t_hop\n"
    ".p2align 4\n.type t_nil,@function\nt_nil: .cfi_startproc\n	ret\n.cfi_endproc\n.size t_nil, .-t_nil\n.p2align 4\n");

enum { TARGETS = LAST - LEAF };
unsigned (*volatile taken[])(unsigned) = { t_leaf, t_on, t_both, t_loop, t_turn, t_pass, t_hop, t_nil };

#define ONE(n) CALLED unsigned o_##n(unsigned x) { salt = 3; return taken[(x + n) % TARGETS](x); }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

static unsigned (*const all[])(unsigned) = {
#define OF(t) o_##t##0, o_##t##1, o_##t##2, o_##t##3, o_##t##4, o_##t##5, o_##t##6, o_##t##7, o_##t##8, o_##t##9,
	OF(1) OF(2) OF(3) OF(4)
};

// One instruction that calls any of them.
CALLED unsigned site(unsigned (*f)(unsigned), unsigned x) { return f(x) + 1; }

static void count(unsigned target, unsigned x)
{
	returned[LEAF + target]++;
	if (target == 2 && x % 2 == 0)
		returned[ON]++;
	if (target == 4)
		returned[LEAF]++;
	if (target == 6)
		returned[PASS]++;
	if (target == 1 || target == 2 && x % 2 == 0 || target == 5 || target == 6)
		returned[LAST]++;
}

static void *work(void *rounds)
{
	unsigned sum = 0;
	for (unsigned n = 0; n < (unsigned)(long)rounds; n++) {
		for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
			unsigned x = n + i / 4;
			sum += site(all[i], x);
			returned[O]++;
			count((x + 10 + i) % TARGETS, x);
		}
		for (unsigned target = 0; target < TARGETS; target++) {
			sum += site(taken[target], n);
			count(target, n);
		}
		if (n % 5 != 0)
			continue;
		// Left in the target or behind more jumps; then called without a jump to it.
		for (unsigned i = 0; i < TARGETS; i++) {
			if (i == 3 || i == 4 || i == 7)
				continue; // they forget their argument
			if (setjmp(out) == 0)
				site(all[6 + i], LEAVES); // from o_16 on
			sum += site(taken[i], 4);
			count(i, 4);
			sum += site(last, 5);
			returned[LAST]++;
		}
	}
	return (void *)(long)sum;
}

int main(int argc, char **argv)
{
	char line[16];
	pthread_t threads[16];

	puts("ready");
	fflush(stdout);
	if (argc < 3 || !fgets(line, sizeof line, stdin))
		return 3;
	int many = atoi(argv[2]);
	for (int i = 0; i < many; i++)
		pthread_create(&threads[i], 0, work, (void *)atol(argv[1]));
	for (int i = 0; i < many; i++)
		pthread_join(threads[i], 0);
	printf("done");
	for (int i = 0; i < KINDS; i++)
		printf(" %lu", returned[i]);
	printf("\n");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
