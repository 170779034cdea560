// Functions that call themselves, and end in calls of others, which become jumps.
#include <stdio.h>
#include <stdlib.h>

static volatile long sum;

#define LEAF(n)                                                                                    \
    __attribute__((noinline)) long leaf##n(long x) {                                               \
        sum += x + n;                                                                              \
        return x + n;                                                                              \
    }
#define LEAVES(n) LEAF(n##0) LEAF(n##1) LEAF(n##2) LEAF(n##3) LEAF(n##4) LEAF(n##5) LEAF(n##6) LEAF(n##7) LEAF(n##8) LEAF(n##9)
LEAVES(1) LEAVES(2) LEAVES(3) LEAVES(4)

__attribute__((noinline)) long down(long n) {
    if (n == 0) return 0;
    long v = down(n - 1) & 0xfff;
    if (v % 7 == 0) return leaf10(v);
    if (v % 5 == 0) return leaf11(v);
    if (v % 3 == 0) return leaf12(v);
    if (v % 2 == 0) return leaf13(v);
    if (v % 11 == 0) return leaf14(v);
    return leaf15(v);
}

int main(int argc, char **argv) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 2 || !fgets(line, sizeof line, stdin)) return 3;
    printf("done %ld\n", down(atol(argv[1])));
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
