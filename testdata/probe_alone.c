// Functions that are left by their own returns alone, one that others' code comes into the
// midst of, one that jumps there, and one with a part that lies somewhere else. Each round
// calls all of them; after a line on standard input the program prints a sum.
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned salt = 3;

#define ONE(n) \
	__attribute__((noinline)) unsigned a_##n(unsigned x) { return x & 1 ? x * n + salt : x ^ salt << (n & 7); }
#define TEN(t) ONE(t##0) ONE(t##1) ONE(t##2) ONE(t##3) ONE(t##4) ONE(t##5) ONE(t##6) ONE(t##7) ONE(t##8) ONE(t##9)
TEN(1) TEN(2) TEN(3) TEN(4)

unsigned entered(unsigned x), comes(unsigned x);
__asm__(".text\n.globl entered, comes\n"
	".type entered, @function\nentered:\n.cfi_startproc\naddl $5, %edi\nnop\nnop\n.Linside: leal 1(%rdi,%rdi), %eax\nnopl 0(%rax)\nnopl 0(%rax)\nret\n.cfi_endproc\n.size entered, .-entered\n.balign 32\n"
	".type comes, @function\ncomes:\n.cfi_startproc\naddl $7, %edi\nnopl 0(%rax)\njmp .Linside\n.cfi_endproc\n.size comes, .-comes\n.balign 32\n");

__attribute__((noinline)) unsigned parted(unsigned x)
{
	if (__builtin_expect(x == 77, 0)) {
		printf("%u\n", salt);
		salt++;
		return salt;
	}
	return x + salt;
}

int main(int argc, char **argv)
{
	static unsigned (*const all[])(unsigned) = {
#define OF(t) a_##t##0, a_##t##1, a_##t##2, a_##t##3, a_##t##4, a_##t##5, a_##t##6, a_##t##7, a_##t##8, a_##t##9,
		OF(1) OF(2) OF(3) OF(4)
	};
	char line[16];
	unsigned sum = 0;

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 3;
	for (int n = atoi(argv[argc - 1]); n > 0; n--) {
		for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
			sum += all[i](sum + i);
		sum += entered(sum) + comes(sum) + comes(sum + 1) + parted(sum | 128);
	}
	printf("done %u\n", sum);
	fflush(stdout);
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
