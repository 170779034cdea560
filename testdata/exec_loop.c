// Executes itself over and over, and calls work in between. Usage: exec_loop
// ROUNDS CALLS [N]: it executes itself ROUNDS times, and makes CALLS calls each
// time. It prints "ready" at first, "done" at last, and ends with status 7 after
// a line on standard input, 8 if a result was wrong.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline, noclone)) long work(long a) { __asm__ volatile("" ::: "memory"); return a * 3 + 1; }
int main(int argc, char **argv) {
    char left[24], line[8];
    if (argc < 3) return 2;
    if (argc == 3) (void)!write(1, "ready\n", 6);
    for (long i = 0, n = atol(argv[2]); i < n; i++)
        if (work(i) != i * 3 + 1) return 8;
    long n = atol(argv[argc > 3 ? 3 : 1]);
    if (n > 0) {
        snprintf(left, sizeof left, "%ld", n - 1);
        execl("/proc/self/exe", argv[0], argv[1], argv[2], left, (char *)0);
        return 3;
    }
    (void)!write(1, "done\n", 5);
    (void)!read(0, line, 1);
    return 7;
}
