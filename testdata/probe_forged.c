// A program that maps a memory file of its own making, called as kprobe calls
// its own: SIZE bytes, of which the first come from standard input.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char file[1 << 20];

__attribute__((noinline, aligned(4096))) int victim(int n) { return n * 3 + 1; }

int main(int argc, char **argv)
{
	long size = argc > 1 ? atol(argv[1]) : 0;
	long *loop = mmap((void *)0x210000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	loop[0] = (long)loop; // the next of a list
	loop[1] = 4096;
	printf("%p\n", (void *)victim);
	fflush(stdout);
	int fd = memfd_create("kprobe", 0);
	for (size_t n; (n = fread(file, 1, sizeof file, stdin)) > 0;)
		if (write(fd, file, n) != (ssize_t)n)
			return 1;
	if (fd < 0 || ftruncate(fd, size))
		return 1;
	if (mmap((void *)0x200000000, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED)
		return 2;
	close(fd);
	puts("ready");
	fflush(stdout);
	for (volatile int i = 0;; i = victim(i) & 7)
		usleep(1000);
}
