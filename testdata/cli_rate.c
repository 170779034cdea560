/* cli_rate RATE SECONDS: calls work RATE times a second, 0 is as often as it can,
 * after having printed "ready". */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline, noclone)) long work(long n, const char *text) {
    __asm__ volatile("" : : "r"(text) : "memory");
    return n * 3 + 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double rate = argc > 1 ? atof(argv[1]) : 0, seconds = argc > 2 ? atof(argv[2]) : 1;
    long n = 0;
    puts("ready");
    fflush(stdout);
    for (double begin = now(), t = 0; t < seconds; t = now() - begin)
        for (double due = rate > 0 ? t * rate : n + 1000; n < due; n++)
            work(n, "hello world");
    printf("%ld\n", n);
    return 0;
}
