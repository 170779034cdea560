// A program that must not be kept waiting: it prints "ready", and "signal" at each
// SIGUSR1; at a line it calls work N times (its argument, 1000 if none) and prints
// "done SUM"; at "q" it ends with status 7.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void caught(int sig) {
    (void)sig;
    if (write(1, "signal\n", 7) != 7) _exit(1);
}

__attribute__((noinline)) long work(long n) {
    __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop" : "+r"(n));
    return n * 3 + 1;
}

int main(int argc, char **argv) {
    char line[16];
    long n = argc > 1 ? atol(argv[1]) : 1000;
    struct sigaction sa = {.sa_handler = caught, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, 0);
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        long sum = 0;
        for (long i = 0; i < n; i++) sum += work(i);
        printf("done %ld\n", sum); fflush(stdout);
    }
    return 7;
}
