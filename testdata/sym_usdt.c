/* Statically defined probes as their notes have them, without sys/sdt.h. */
#include <stdio.h>

#define PROBE(provider, name, semaphore, args, ...)                                              \
	__asm__ volatile("771: nop\n"                                                            \
			 ".pushsection .note.stapsdt, \"?\", \"note\"\n"                         \
			 ".balign 4\n"                                                           \
			 ".4byte 773f - 772f, 775f - 774f, 3\n"                                  \
			 "772: .asciz \"stapsdt\"\n"                                             \
			 "773: .balign 4\n"                                                      \
			 "774: .8byte 771b, here.stapsdt.base, " semaphore "\n"                  \
			 ".asciz \"" provider "\", \"" name "\", \"" args "\"\n"                 \
			 "775: .balign 4\n"                                                      \
			 ".popsection\n" __VA_ARGS__)

__asm__(".pushsection .stapsdt.base, \"a\"\n"
	"here.stapsdt.base: .zero 1\n"
	".popsection\n");

unsigned short shop_sold_semaphore __attribute__((section(".probes")));

__attribute__((noinline)) static int sell(int n, double price)
{
	PROBE("shop", "sold", "shop_sold_semaphore", "-4@%edi 8f@%xmm0", );
	if (n > 3)
		PROBE("shop", "many", "0", "", );
	PROBE("shop", "sold", "shop_sold_semaphore", "-4@$7 8@-16(%rbp,%rax,8)", );
	return n + (int)price;
}

int main(int argc, char **argv)
{
	(void)argv;
	printf("%d\n", sell(argc, 2.5));
	return 0;
}
