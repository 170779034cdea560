/*
 * A statically defined probe with arguments of the forms that every tracer knows, its note
 * as sys/sdt.h writes it. usdt_peers passes it for each line of its input, as often as the
 * line says, and prints "done".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE(args)                                                                              \
	"991: nop\n"                                                                             \
	".pushsection .note.stapsdt, \"?\", \"note\"\n"                                          \
	".balign 4\n"                                                                            \
	".4byte 993f - 992f, 995f - 994f, 3\n"                                                   \
	"992: .asciz \"stapsdt\"\n"                                                              \
	"993: .balign 4\n"                                                                       \
	"994: .8byte 991b, peers.stapsdt.base, 0\n"                                              \
	".asciz \"peers\", \"pass\", \"" args "\"\n"                                             \
	"995: .balign 4\n"                                                                       \
	".popsection\n"

__asm__(".pushsection .stapsdt.base, \"aG\", \"progbits\", peers.stapsdt.base, comdat\n"
	".weak peers.stapsdt.base\n"
	".hidden peers.stapsdt.base\n"
	"peers.stapsdt.base: .space 1\n"
	".size peers.stapsdt.base, 1\n"
	".popsection\n");

__attribute__((noinline)) static void pass(int n, const char *text, long *of)
{
	__asm__ volatile(PROBE("-4@%%edi 8@%%rsi -8@8(%%rdx) 2@%%cx -1@$-3") : : "D"(n), "S"(text), "d"(of), "c"(n * 3));
}

int main(void)
{
	char line[32], text[32];
	long of[2] = {1, 0};

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
		for (int i = 0; i < atoi(line); i++) {
			snprintf(text, sizeof text, "text %d", i);
			of[1] = -1000000000000L * i;
			pass(i - 2, text, of);
		}
		puts("done");
		fflush(stdout);
	}
	return 7;
}
