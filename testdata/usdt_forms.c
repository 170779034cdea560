/*
 * Statically defined probes with an argument of every form, their notes written by
 * hand. For each line "pass" of its input the program passes all of them, and prints
 * which it passed, with the values that they have. With "fork" a child does the same
 * before, and ends with its semaphore, which is printed. With "stay" the first line's
 * child waits for the second line before it ends so. Another line ends it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTE(name, semaphore, args)                                                              \
	"771: nop\n"                                                                             \
	".pushsection .note.stapsdt, \"?\", \"note\"\n"                                          \
	".balign 4\n"                                                                            \
	".4byte 773f - 772f, 775f - 774f, 3\n"                                                   \
	"772: .asciz \"stapsdt\"\n"                                                              \
	"773: .balign 4\n"                                                                       \
	"774: .8byte 771b, forms.stapsdt.base, " semaphore "\n"                                  \
	".asciz \"forms\", \"" name "\", \"" args "\"\n"                                         \
	"775: .balign 4\n"                                                                       \
	".popsection\n"

__asm__(".pushsection .stapsdt.base, \"a\"\n"
	"forms.stapsdt.base: .zero 1\n"
	".popsection\n");

volatile unsigned short forms_guarded_semaphore __attribute__((section(".probes")));

int forms_global = -5;
uint16_t forms_array[4] = {10, 20, 30000, 65000};
float forms_float = 2.25f;
const char *forms_text = "a text in memory";
static int64_t block[8];

static char out[1 << 14];

static void say(const char *format, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	size_t n = strlen(out);

	snprintf(out + n, sizeof out - n, format, a, b, c, d);
}

static void say_float(const char *format, double a, double b, double c, double d)
{
	size_t n = strlen(out);

	snprintf(out + n, sizeof out - n, format, a, b, c, d);
}

__attribute__((noinline)) static void registers(uint64_t di, uint64_t cx)
{
	__asm__ volatile("mov %%rdi, %%r11\n"
			 NOTE("wide", "0", "8@%%rdi -8@%%r11 -4@%%edi 4@%%r11d")
			 NOTE("narrow", "0", "2@%%di -2@%%r11w 1@%%dil -1@%%r11b")
			 NOTE("parts", "0", "1@%%cl -1@%%cl 1@%%ch -1@%%ch")
			 : : "D"(di), "c"(cx) : "r11");
	say("wide arg1=0x%lx arg2=%ld arg3=%d arg4=%u|", di, di, di, di);
	say("narrow arg1=%u arg2=%d arg3=%u arg4=%d|", (uint16_t)di, (int16_t)di, (uint8_t)di, (int8_t)di);
	say("parts arg1=%u arg2=%d arg3=%u arg4=%d|", (uint8_t)cx, (int8_t)cx, (uint8_t)(cx >> 8), (int8_t)(cx >> 8));
}

__attribute__((noinline)) static void constants(void)
{
	__asm__ volatile(NOTE("constants", "0", "-4@$-7 4@$-7 8@$0x10 -1@$255")
			 NOTE("addresses", "0", "8@$forms_array+4 8@forms_array@GOTPCREL(%%rip) $9 8@%%fs:0") : :);
	say("constants arg1=%d arg2=%u arg3=0x%lx arg4=%d|", -7, -7, 16, -1);
	uint64_t thread;

	__asm__("mov %%fs:0, %0" : "=r"(thread));
	say("addresses arg1=0x%lx arg2=0x%lx arg3=0x%lx arg4=0x%lx|", (uintptr_t)forms_array + 4, (uintptr_t)forms_array, 9, thread);
}

__attribute__((noinline)) static void memory(void)
{
	char *at = (char *)&block[2];

	for (int i = 0; i < 8; i++)
		block[i] = (i + 1) * 0x8192a3b4c5d6e7f8;
	__asm__ volatile(NOTE("based", "0", "-4@-4(%%rbx) 8@(%%rbx) 2@6(%%rbx) -1@3+4(%%rbx)")
			 NOTE("indexed", "0", "-2@4(%%rbx,%%rcx,2) 4@(%%rbx,%%rcx) 8@8(,%%rdx,8) -8@-8(%%rbx, %%rcx, 4)")
			 : : "b"(at), "c"(2UL), "d"((uintptr_t)at / 8) : "memory");
	say("based arg1=%d arg2=0x%lx arg3=%u arg4=%d|", *(int32_t *)(at - 4), *(int64_t *)at, *(uint16_t *)(at + 6), *(int8_t *)(at + 7));
	say("indexed arg1=%d arg2=%u arg3=0x%lx arg4=%ld|", *(int16_t *)(at + 8), *(uint32_t *)(at + 2), *(int64_t *)(at + 8), *(int64_t *)at);
	__asm__ volatile("sub $128, %%rsp\n"
			 "push $-3\n"
			 "push $77\n"
			 NOTE("stack", "0", "-4@8(%%rsp) 8@(%%rsp)")
			 "add $144, %%rsp\n" : : : "memory", "cc");
	say("stack arg1=%d arg2=0x%lx|", -3, 77, 0, 0);
}

__attribute__((noinline)) static void globals(void)
{
	__asm__ volatile(NOTE("globals", "0", "-4@forms_global(%%rip) 2@4+forms_array(%%rip) 2@forms_array+2(%%rip) 4@forms_array-0(%%rip)") : : : "memory");
	say("globals arg1=%d arg2=%u arg3=%u arg4=%u|", forms_global, forms_array[2], forms_array[1], *(uint32_t *)forms_array);
}

__attribute__((noinline)) static void floats(double a, float b, double *c)
{
	__asm__ volatile(NOTE("floats", "0", "8f@%%xmm0 4f@%%xmm1 8f@(%%rbx) 4f@forms_float(%%rip)") : : "b"(c), "x"(a), "x"(b) : "memory");
	say_float("floats arg1=%g arg2=%g arg3=%g arg4=%g|", a, b, *c, forms_float);
}

__attribute__((noinline)) static void texts(const char *s)
{
	__asm__ volatile(NOTE("texts", "0", "8@%%rdi 8@forms_text(%%rip) -4@$5") : : "D"(s) : "memory");
	say("texts a=\"%s\" b=\"%s\" n=%ld|", (uintptr_t)s, (uintptr_t)forms_text, 5, 0);
}

__attribute__((noinline)) static void many_one(int n)
{
	__asm__ volatile(NOTE("many", "0", "-4@%%edi 8@%%rdi") : : "D"((long)n));
	say("many arg1=%d|", n, 0, 0, 0);
}

__attribute__((noinline)) static void many_two(void)
{
	__asm__ volatile(NOTE("many", "0", "1@$3") : :);
	say("many arg1=%d|", 3, 0, 0, 0);
}

__attribute__((noinline)) static void unreadable(int n)
{
	__asm__ volatile(NOTE("unreadable", "0", "16@%%xmm0 -4@%%edi 4@.LC99(%%rip) 8@%%st(1)") : : "D"(n));
	say("unreadable arg2=%d|", n, 0, 0, 0);
}

__attribute__((noinline)) static void guarded(int n)
{
	if (forms_guarded_semaphore == 0)
		return;
	__asm__ volatile(NOTE("guarded", "forms_guarded_semaphore", "-4@%%edi") : : "D"(n));
	say("guarded arg1=%d|", n, 0, 0, 0);
}

static void pass(int n)
{
	static double third = 1.0 / 8;

	registers(0x11223344fffffff9 + n, 0x8180 + n);
	constants();
	memory();
	globals();
	floats(1.5 + n, -0.25f, &third);
	texts("a text");
	many_one(n);
	many_two();
	unreadable(n);
	guarded(n);
}

int main(int argc, char **argv)
{
	char line[16];
	int told[2];
	pid_t staying = 0;

	printf("ready %p\n", (void *)&forms_guarded_semaphore);
	fflush(stdout);
	for (int n = 0; fgets(line, sizeof line, stdin); n++) {
		if (line[0] != 'p')
			return 7;
		out[0] = 0;
		if (argc > 1 && strcmp(argv[1], "fork") == 0) {
			int status = 0;
			pid_t kid = fork();

			if (kid == 0) {
				pass(n);
				_exit(forms_guarded_semaphore);
			}
			waitpid(kid, &status, 0);
			say("kid %d|", WEXITSTATUS(status), 0, 0, 0);
		}
		if (argc > 1 && strcmp(argv[1], "stay") == 0 && n == 0 && pipe(told) == 0) {
			staying = fork();
			if (staying == 0) {
				close(told[1]);
				(void)!read(told[0], line, 1);
				_exit(forms_guarded_semaphore);
			}
		} else if (staying > 0) {
			int status = 0;

			close(told[1]);
			waitpid(staying, &status, 0);
			staying = 0;
			say("kid %d|", WEXITSTATUS(status), 0, 0, 0);
		}
		pass(n);
		printf("done %ssemaphore %d\n", out, forms_guarded_semaphore);
		fflush(stdout);
	}
	return 7;
}
