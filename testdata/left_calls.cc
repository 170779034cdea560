// Calls that are left by an exception or longjmp, and behind each, from the same
// instruction with the same stack, a call of another function that returns. The
// program says how often each was called; its results are checked.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#define OWN extern "C" __attribute__((noinline))

static jmp_buf back;
volatile int kept;

OWN int thrower(int x)
{
	kept = x;
	throw x;
}

OWN int jumper(int x)
{
	kept = x;
	longjmp(back, 1);
}

OWN int finish(int x)
{
	kept = x + 1;
	return x + 2;
}

// It ends in a jump to finish, but for those that throw.
OWN int passer(int x)
{
	if (x % 2)
		throw x;
	return finish(x);
}

// It ends in a jump to sometimes, but for those that return by themselves.
OWN int sometimes(int x)
{
	kept = x;
	if (x % 4 == 2)
		throw x;
	return x + 4;
}

OWN int chooser(int x)
{
	kept = x;
	if (x % 4 == 2)
		return sometimes(x);
	return x + 4;
}

// It ends in a jump to sometimes only if it doesn't go on by itself, by a jump that
// has a condition.
OWN int unsure(int x)
{
	if (x % 4)
		return sometimes(x);
	kept = x;
	throw x;
}

// They return, or are left: nothing but that they are called says which.
OWN int leaver(int x)
{
	kept = x;
	if (x % 2)
		throw x;
	return x + 5;
}

OWN int jumps(int x)
{
	kept = x;
	if (x % 2)
		longjmp(back, 1);
	return x + 6;
}

// Nobody probes it.
OWN int quiet(int x)
{
	kept = x;
	return x + 7;
}

OWN int plain(int x)
{
	kept = x;
	return x + 3;
}

// It jumps to finish if a flag says so, else it returns by itself or is left.
extern "C" int either(int x);
asm(".text\n.p2align 4\n.globl either\n.type either, @function\neither:\n"
    "	mov %edi, %eax\n	and $3, %eax\n	cmp $1, %eax\n	je finish\n"
    "	cmp $3, %eax\n	je 1f\n	lea 9(%rdi), %eax\n	ret\n"
    "1:	sub $8, %rsp\n	call jumper\n	.size either, . - either\n");

typedef int (*function)(int);

static int (*volatile table[])(int) = { thrower, plain, jumper, plain, passer, finish, leaver, jumps, quiet };

// All calls of the table come from one instruction.
__attribute__((noinline)) static int call(function f, int x)
{
	int r = -1;

	if (setjmp(back))
		return -2;
	try {
		r = f(x);
	} catch (int) {
		r = -3;
	}
	return r;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1000, wrong = 0;

	for (int i = 0; i < n; i++) {
		wrong += call(table[0], i) != -3;
		wrong += call(table[1], i) != i + 3;
		wrong += call(table[2], i) != -2;
		wrong += call(table[3], i) != i + 3;
		wrong += call(table[4], i) != (i % 2 ? -3 : i + 2);
		wrong += call(table[5], i) != i + 2;
		wrong += call(table[6], i) != (i % 2 ? -3 : i + 5);
		wrong += call(table[8], i) != i + 7;
		wrong += call(table[7], i) != (i % 2 ? -2 : i + 6);
		wrong += call(table[8], i) != i + 7;
		wrong += call(chooser, i) != (i % 4 == 2 ? -3 : i + 4);
		wrong += call(either, i) != (i % 4 == 1 ? i + 2 : i % 4 == 3 ? -2 : i + 9);
		wrong += call(table[5], i) != i + 2;
		wrong += call(sometimes, 0) != 4;
		wrong += call(unsure, i) != (i % 4 == 2 || i % 4 == 0 ? -3 : i + 4);
		wrong += call(sometimes, 0) != 4;
	}
	return wrong ? 1 : 42;
}
