// Signal handlers that end in jumps: they return to the signal trampoline. After a line on standard input each way is
// taken in turn, and the program prints how many calls of each function have ended by a return. A second argument
// is one more way, which waits for a line in returns if w follows.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLED __attribute__((noinline, noclone, used))
#define NAKED __attribute__((naked, noinline, noclone, used))
typedef long (*op)(const char *way, long x);
static op ops[128];
long calls[128];
static volatile long salt = 3;
static sigjmp_buf out;
static const char *way;
static char line[16];

// Each function goes on to the one that is next on its way, by its letter.
#define ON(letter, name) CALLED long name(const char *way, long x) { calls[letter]++; salt = 3; return ops[*way & 127](way + 1, x + 1); }
ON('a', one) ON('b', two) ON('c', three)
CALLED long ends(const char *way, long x) { calls['e']++; salt = 3; return x + salt; }
// It has so many returns that they are not patched if return trampolines may be used.
#define RETURN(n) case n: salt = n; return salt * n + x;
CALLED long returns(const char *way, long x)
{
	calls['r']++;
	salt = 3;
	if (*way == 'w') {
		puts("waits");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			exit(3);
	}
	switch (x & 7) { RETURN(0) RETURN(1) RETURN(2) RETURN(3) RETURN(4) RETURN(5) RETURN(6) }
	return x;
}
// They jump to their own entries.
NAKED long again(const char *way, long x)
{
	asm("test $15, %sil\n jz 1f\n inc %rsi\n jmp again\n"
	    "1: incq calls+8*'s'(%rip)\n inc %rsi\n movzbl (%rdi), %eax\n inc %rdi\n lea ops(%rip), %rdx\n mov (%rdx,%rax,8), %rdx\n jmp *%rdx");
}
NAKED long direct(const char *way, long x)
{
	asm("test $15, %sil\n jz 1f\n inc %rsi\n jmp direct\n1: incq calls+8*'d'(%rip)\n jmp returns");
}
NAKED long stays(const char *way, long x)
{
	asm("test $15, %sil\n jz 1f\n inc %rsi\n jmp stays\n1: incq calls+8*'o'(%rip)\n mov %rsi, %rax\n ret");
}
// It goes where a register says.
NAKED long inside(const char *way, long x)
{
	asm("incq calls+8*'i'(%rip)\n lea 1f(%rip), %rdx\n mov %rsi, %rax\n jmp *%rdx\n nop\n nop\n1: inc %rax\n ret");
}
CALLED long leaves(const char *way, long x) { salt = 3; siglongjmp(out, 1); }
CALLED long gone(const char *way, long x) { salt = 3; return ops[*way & 127](way + 1, x + 1); }
CALLED long lost(const char *way, long x) { salt = 3; return ops[*way & 127](way + 1, x + 1); }
CALLED long nests(const char *way, long x)
{
	calls['n']++;
	salt = 3;
	raise(SIGUSR2);
	return ops[*way & 127](way + 1, x + 1);
}
static op ops[128] = { ['a'] = one, ['b'] = two, ['c'] = three, ['e'] = ends, ['r'] = returns, ['s'] = again, ['d'] = direct, ['o'] = stays,
	['i'] = inside, ['l'] = leaves, ['x'] = gone, ['y'] = lost, ['n'] = nests };

CALLED void handler(int sig) { calls['h']++; salt = 3; ((void (*)(const char *, long))ops[*way & 127])(way + 1, sig); }
CALLED void nested(int sig) { calls['m']++; salt = 3; ((void (*)(const char *, long))ops['b'])("e", sig); }
CALLED void other(int sig) { salt = 3; ((void (*)(const char *, long))ops[*way & 127])(way + 1, sig); }

#define ONE(n) CALLED long z_##n(long x) { salt = 3; return x * n + salt; }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

static void set(int sig, void (*f)(int), int flags)
{
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = f;
	a.sa_flags = flags;
	sigaction(sig, &a, 0);
}

int main(int argc, char **argv)
{
	static char stack[1 << 16];
	static const char *const ways[] = { "e", "ae", "abe", "abce", "o", "abo", "i", "abci", "ase", "sae", "asbo", "abra", "d", "ad", "asr",
		"cabcabe", "ababi", "sasae", "ne", "anbo", "ansbe", "r" };
	stack_t s = { .ss_sp = stack, .ss_size = sizeof stack };

	puts("ready");
	fflush(stdout);
	if (argc < 2 || !fgets(line, sizeof line, stdin))
		return 3;
	sigaltstack(&s, 0);
	for (long r = 0; r < atol(argv[1]); r++) {
		int flags = (r & 1 ? SA_ONSTACK : 0) | (r & 2 ? SA_SIGINFO : 0);
		set(SIGUSR1, handler, flags);
		set(SIGUSR2, nested, flags);
		set(SIGHUP, other, flags);
		for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
			way = "xyl";
			if (sigsetjmp(out, 1) == 0)
				raise(SIGHUP);
			way = ways[i];
			raise(SIGUSR1);
		}
		salt = z_10(r) + z_49(r);
	}
	if (argc > 2) {
		way = argv[2];
		raise(SIGUSR1);
	}
	printf("done");
	for (int i = 0; i < 128; i++)
		if (calls[i])
			printf(" %c=%ld", i, calls[i]);
	puts("");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
