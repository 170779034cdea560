// Text that is mapped without a loader: shared_text FILE OFFSET HOW. It prints
// "ready"; at a line it maps the file's first pages, shared ("shared"), or of a
// memfd with a copy of it, private ("memfd") or shared ("memfd-shared"), and prints
// "mapped"; at each further one it calls the function at the offset 10 times with 0
// to 9 and prints the sum of what it gave.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char line[16];
    puts("ready"); fflush(stdout);
    int fd = argc > 3 ? open(argv[1], O_RDWR) : -1;
    if (fd < 0 || !fgets(line, sizeof line, stdin)) return 3;
    if (!strncmp(argv[3], "memfd", 5)) {
        int m = memfd_create("part.so", MFD_CLOEXEC), n;
        char b[4096];
        while ((n = read(fd, b, sizeof b)) > 0)
            if (write(m, b, n) != n) return 4;
        fd = m;
    }
    int how = strcmp(argv[3], "memfd") ? MAP_SHARED : MAP_PRIVATE;
    char *at = mmap(0, 0x1000, PROT_READ | PROT_EXEC, how, fd, 0);
    if (at == MAP_FAILED) return 5;
    long (*f)(long) = (long (*)(long))(at + strtol(argv[2], 0, 0));
    puts("mapped"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long sum = 0;
        for (long k = 0; k < 10; k++) sum += f(k);
        printf("%ld\n", sum); fflush(stdout);
    }
    return 7;
}
