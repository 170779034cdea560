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

OWN int plain(int x)
{
	kept = x;
	return x + 3;
}

typedef int (*function)(int);

static int (*volatile table[])(int) = { thrower, plain, jumper, plain, passer, finish };

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
		wrong += call(chooser, i) != (i % 4 == 2 ? -3 : i + 4);
	}
	return wrong ? 1 : 42;
}
