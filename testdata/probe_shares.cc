// Three hundred functions that end in a jump to one, and return by its returns; a
// third of them through another. Some are left by exceptions. Usage:
// probe_shares ROUNDS THREADS. As probe_calls it prints "ready", waits for a line,
// works, prints "done SUM CAUGHT" and ends after another line.
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#define FUNC extern "C" __attribute__((noinline, noclone))

static volatile long sunk;

FUNC long last(long x) {
    if (x & 1) { sunk = x; return 3 * x + 1; }
    asm volatile("");
    return 3 * x + 1;
}

FUNC long between(long x) { sunk = 7; return last(x); }

FUNC long throws(long x) {
    asm volatile("");
    if (x % 5 == 0) throw x;
    return last(x);
}

// It never returns, and is never called: there is an exit of last behind it.
FUNC void never(long x) { if (x > 0) { sunk = x; exit(9); } sunk = 1; abort(); }

#define F(n) FUNC long s_##n(long x) { sunk = n; return n % 3 ? last(x) : between(x); }
#define F10(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define F100(n) F10(n##0) F10(n##1) F10(n##2) F10(n##3) F10(n##4) F10(n##5) F10(n##6) F10(n##7) F10(n##8) F10(n##9)
F100(1) F100(2) F100(3)
#define P(n) s_##n,
#define P10(n) P(n##0) P(n##1) P(n##2) P(n##3) P(n##4) P(n##5) P(n##6) P(n##7) P(n##8) P(n##9)
#define P100(n) P10(n##0) P10(n##1) P10(n##2) P10(n##3) P10(n##4) P10(n##5) P10(n##6) P10(n##7) P10(n##8) P10(n##9)
static long (*const functions[])(long) = { P100(1) P100(2) P100(3) };

static long rounds;

static void *works(void *arg) {
    long *sums = (long *)arg;
    for (long i = 0; i < rounds; i++) {
        for (auto f : functions) sums[0] += f(i);
        try {
            sums[0] += throws(i);
        } catch (long) {
            sums[1]++;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin)) return 3;
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    if (rounds < 0) never(rounds);
    pthread_t t[64];
    long sums[64][2] = {};
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, works, sums[i]);
    long sum = 0, caught = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i][0], caught += sums[i][1];
    }
    printf("done %ld %ld\n", sum, caught);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
