// Forty-four functions that end in a jump through a pointer: to one of the program's, to one
// of libc's, to one that throws, or that leaves by longjmp. Usage: probe_onward ROUNDS
// THREADS. As probe_calls it prints "ready", waits for a line, works, prints "done SUM
// CAUGHT" and ends after another line.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#define FUNC extern "C" __attribute__((noinline, noclone))

typedef long (*op)(long);
static volatile long sunk;
static thread_local jmp_buf away;

FUNC long own(long x) { sunk = x; return 3 * x + 1; }
FUNC long alike(long x) { if (x & 1) return own(x); sunk = 2; return 3 * x + 1; }
FUNC long raises(long x) { sunk = x; if (x % 3 == 0) throw x; return 3 * x + 1; }
FUNC long flees(long x) { sunk = x; if (x % 3 == 1) longjmp(away, 1); return 3 * x + 1; }

// hop's target is the caller's choice: the compiler can't know it.
#define F(n) FUNC long hop_##n(long x, op to) { sunk = n; return to(x); }
#define F10(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
F10(1) F10(2) F10(3) F10(4)
#define P(n) hop_##n,
#define P10(n) P(n##0) P(n##1) P(n##2) P(n##3) P(n##4) P(n##5) P(n##6) P(n##7) P(n##8) P(n##9)
static long (*const hops[])(long, op) = { P10(1) P10(2) P10(3) P10(4) };
struct target { op to; char pad[24]; };
static target targets[] = {{own, ""}, {labs, ""}, {alike, ""}, {raises, ""}, {flees, ""}};

// A jump through memory, and two in a row.
FUNC long through(long x, target *t) { sunk = 5; return t->to(x); }
FUNC long twice(long x, target *t) { sunk = 6; return hop_10(x, t->to); }

// Jumps through tables: the compiler's knowledge of one, and one that is the caller's.
static op const list[] = {own, labs, alike, raises, flees};
FUNC long indexed(long x, long t) { sunk = 7; return list[t](x); }
FUNC long listed(long x, const op *l, long t) { sunk = 8; return l[t](x); }

static long rounds;

static void *works(void *arg) {
    long *sums = (long *)arg;
    for (volatile long i = 0; i < rounds; i++)
        for (volatile int t = 0; t < 5; t++)
            for (volatile int f = 0; f < 44; f++)
                try {
                    if (setjmp(away)) { sums[1]++; continue; }
                    // One call instruction for all: what is left of one call lies where
                    // the next returns.
                    if (f < 40) sums[0] += hops[f](i, targets[t].to);
                    else if (f < 42) sums[0] += (f == 40 ? through : twice)(i, &targets[t]);
                    else sums[0] += f == 42 ? indexed(i, t) : listed(i, list, t);
                } catch (long) {
                    sums[1]++;
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
