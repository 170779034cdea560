// Text that is mapped without a loader: shared_text FILE OFFSET HOW. It prints
// "ready"; at a line it maps the file's first pages, shared ("shared"), or of a
// memfd with a copy of it, private ("memfd") or shared ("memfd-shared"), or private and
// of a huge page ("memfd-huge"), and prints
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
    size_t size = 0x1000;
    if (!strcmp(argv[3], "memfd-huge")) {
        int h = memfd_create("part.so", MFD_CLOEXEC | MFD_HUGETLB);
        char *copy;
        size = 2 << 20;
        if (h < 0 || ftruncate(h, size)) return 6;
        copy = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, h, 0);
        if (copy == MAP_FAILED || pread(fd, copy, size, 0) <= 0 || munmap(copy, size)) return 6;
        fd = h;
    }
    int how = strcmp(argv[3], "memfd") && strcmp(argv[3], "memfd-huge") ? MAP_SHARED : MAP_PRIVATE;
    char *at = mmap(0, size, PROT_READ | PROT_EXEC, how, fd, 0);
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
