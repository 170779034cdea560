/* library_part.c's function with a statically defined probe that it passes only while
 * the probe's semaphore is raised. */
static volatile unsigned short semaphore __attribute__((section(".probes")));

__asm__(".pushsection .stapsdt.base, \"a\"\n"
	"library.stapsdt.base: .zero 1\n"
	".popsection\n");

__attribute__((noinline, visibility("default"))) long part_work(long n)
{
	if (semaphore)
		__asm__ volatile("771: nop\n"
				 ".pushsection .note.stapsdt, \"?\", \"note\"\n"
				 ".balign 4\n"
				 ".4byte 773f - 772f, 775f - 774f, 3\n"
				 "772: .asciz \"stapsdt\"\n"
				 "773: .balign 4\n"
				 "774: .8byte 771b, library.stapsdt.base, semaphore\n"
				 ".asciz \"library\", \"work\", \"-8@%%rdi\"\n"
				 "775: .balign 4\n"
				 ".popsection\n" : : "D"(n));
	return n * 3 + 1;
}
