// Functions that jump to their own entries and then through a pointer, maybe to themselves, or to one that jumps back. After a
// line on standard input each way is taken, and the program prints how many calls of each function have ended by a return.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLED __attribute__((noinline, noclone, used))
#define NAKED __attribute__((naked, noinline, noclone, used))
typedef long (*op)(const char *way, long x);
static op ops[128];
static jmp_buf out;
long calls[128];
static volatile long salt = 3;

// Each function goes on to the one that is next on its way, by its letter. The first two jump to their own entries before.
#define SELF(letter, name) \
NAKED long name(const char *way, long x) \
{ \
	asm("test $3, %sil\n jz 1f\n inc %rsi\n jmp " #name "\n" \
	    "1: incq calls+8*'" letter "'(%rip)\n inc %rsi\n movzbl (%rdi), %eax\n inc %rdi\n lea ops(%rip), %rdx\n mov (%rdx,%rax,8), %rdx\n jmp *%rdx"); \
}
SELF("s", again) SELF("t", more)
// It goes to a function that comes back, some times.
CALLED long back(const char *way, long x);
NAKED long turns(const char *way, long x)
{
	asm("test $3, %sil\n jz 1f\n inc %rsi\n jmp turns\n1: incq calls+8*'d'(%rip)\n inc %rsi\n jmp back");
}
CALLED long back(const char *way, long x) { salt = 3; return x & 16 ? x + salt : turns(way, x + 1); }
CALLED long one(const char *way, long x) { calls['a']++; salt = 3; return ops[*way & 127](way + 1, x + 1); }
CALLED long ends(const char *way, long x) { calls['e']++; salt = 3; return x + salt; }
CALLED long hidden(const char *way, long x) { salt = 3; return ops[*way & 127](way + 1, x + 1); } // nobody probes it
CALLED long leaves(const char *way, long x) { salt = 3; longjmp(out, 1); }
static op ops[128] = { ['a'] = one, ['e'] = ends, ['s'] = again, ['t'] = more, ['d'] = turns, ['h'] = hidden, ['l'] = leaves };

#define ONE(n) CALLED long z_##n(long x) { salt = 3; return x * n + salt; }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

CALLED long site(op f, const char *way, long x) { return f(way, x) + 1; }

int main(int argc, char **argv)
{
	static const char *const ways[] = { "se", "sse", "ssse", "ste", "stste", "sase", "sasase", "hse", "shse", "ashsae", "shte", "sshssahse", "d", "sd", "sshad" };
	long kept[128];
	char line[16];

	puts("ready");
	fflush(stdout);
	if (argc < 2 || !fgets(line, sizeof line, stdin))
		return 3;
	for (long r = 0; r < atol(argv[1]); r++)
		for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
			for (int j = 0; j < 128; j++)
				kept[j] = calls[j];
			if (setjmp(out) == 0)
				site(hidden, "sl", r);
			for (int j = 0; j < 128; j++)
				calls[j] = kept[j];
			site(hidden, ways[i], r);
			salt = z_10(r) + z_49(r);
		}
	printf("done");
	for (int i = 0; i < 128; i++)
		if (calls[i])
			printf(" %c=%ld", i, calls[i]);
	puts("");
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
