/* recorder_passes [made]: prints "ready". From a line on it calls passes(N), which jumps on to
 * works(N), EARLY times, and in another thread once more; that call waits in works. Then it prints
 * "waits". From another line on it calls passes LATE times, lets the waiting call return, prints
 * "done SUM" with the sum of all results, and ends with status 7 after a third line. With made,
 * code that is made at run time calls passes; it is unmapped before "done". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EARLY = 200, LATE = 1000 };

typedef long (*op)(long);
static volatile int inside, may_return;
static long sum;

__attribute__((noinline)) long works(long n) {
    if (n < 0) {
        inside = 1;
        while (!may_return)
            usleep(1000);
    }
    return n * 3;
}

__attribute__((noinline)) long passes(long n) {
    __asm__ volatile("" : "+r"(n) : : "memory");
    return works(n + 1);
}

__attribute__((noinline)) static long plain(long n, op to) { return to(n) + 1; }
static long (*volatile call)(long, op) = plain;

static void *waiting(void *result) {
    *(long *)result = call(-10, passes);
    return NULL;
}

static void calls(int times) {
    for (int n = 0; n < times; n++)
        sum += call(n, passes);
}

int main(int argc, char **argv) {
    (void)argv;
    char line[64];
    if (argc > 1) { /* sub $8, %rsp; call *%rsi; add $9, %rax; add $8, %rsp; ret */
        static const unsigned char code[] = "\x48\x83\xec\x08\xff\xd6\x48\x83\xc0\x09\x48\x83\xc4\x08\xc3";
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 2;
        call = (long (*)(long, op))memcpy(p, code, sizeof code);
    }
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    pthread_t other;
    long last = 0;
    calls(EARLY);
    pthread_create(&other, NULL, waiting, &last);
    while (!inside)
        usleep(1000);
    printf("waits\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 4;
    calls(LATE);
    may_return = 1;
    pthread_join(other, NULL);
    if (argc > 1)
        munmap((void *)call, 4096);
    printf("done %ld\n", sum + last);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 5;
}
