// Calls of one function from one instruction, at one depth: the first is left by
// longjmp, the second waits in its midst, the third just returns. Each is made after
// a line on standard input; the program says "jumped" and "left", "within", after another line
// "done", and "again", and ends with status 7 after one more.
#include <setjmp.h>
#include <stdio.h>

enum { LEAVE, WAIT, RETURN };

static jmp_buf back;
static char line[16];
volatile int kept;

__attribute__((noinline)) int f(int what)
{
	kept = what;
	if (what == LEAVE)
		longjmp(back, 1);
	if (what == WAIT) {
		puts("within");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			return -1;
	}
	return kept + 1;
}

__attribute__((noinline)) static int call(int what)
{
	if (setjmp(back)) {
		kept = puts("jumped");
		return 0;
	}
	return f(what);
}

int main(void)
{
	static const char *const said[] = { "left", "done", "again" };

	puts("ready");
	fflush(stdout);
	for (volatile int i = LEAVE; i <= RETURN; i++) {
		if (!fgets(line, sizeof line, stdin))
			return 3;
		if (call(i) != (i == LEAVE ? 0 : i + 1))
			return 4;
		puts(said[i]);
		fflush(stdout);
	}
	return fgets(line, sizeof line, stdin) ? 7 : 3;
}
