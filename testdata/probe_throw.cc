// Exceptions through probed functions. Usage: probe_throw COUNT
// As probe_calls it prints "ready", waits for a line, works, prints "done SUM"
// and ends after another line. A third of the calls of thrower throw.
#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((noinline, noclone)) long thrower(long n) {
    asm volatile("");
    if (n % 3 == 0) throw n;
    return n * 2;
}

int main(int argc, char **argv) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 2 || !fgets(line, sizeof line, stdin)) return 3;
    long sum = 0, caught = 0;
    for (long i = 0; i < atol(argv[1]); i++) {
        try {
            sum += thrower(i);
        } catch (long v) {
            caught += v == i;
        }
    }
    printf("done %ld %ld\n", sum, caught);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
