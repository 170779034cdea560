// A program whose threads wait uninterruptibly again and again: one holds the
// memory map's lock for long, one asks for it to write. It prints its process
// id and ends when its input does.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *hold(void *unused) {
    (void)unused;
    const size_t size = 384UL << 20;
    for (;;) {
        char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            exit(3);
        madvise(p, size, MADV_NOHUGEPAGE);
        madvise(p, size, 23); // MADV_POPULATE_WRITE
        if (munmap(p, size) != 0)
            exit(3);
    }
    return 0;
}

static void *ask(void *unused) {
    (void)unused;
    for (;;) {
        char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || munmap(p, 4096) != 0)
            exit(4);
    }
    return 0;
}

int main(void) {
    pthread_t t;
    printf("%d\n", getpid());
    fflush(stdout);
    if (pthread_create(&t, 0, hold, 0) != 0 || pthread_create(&t, 0, ask, 0) != 0)
        return 2;
    while (getchar() != EOF)
        ;
    return 0;
}
