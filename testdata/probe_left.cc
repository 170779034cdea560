// Threads whose calls are left by longjmp from ever other depths of their stacks. Usage: probe_left ROUNDS THREADS. In
// each thread half of the calls of leaf, inner, middle, beyond and outer are left, and those of again return. As probe_calls it prints
// "ready", waits for a line, works, prints "done SUM" and ends after another line.
#include <alloca.h>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>

#define FUNC extern "C" __attribute__((noinline, used))
static volatile long sunk;
static thread_local jmp_buf away;

FUNC int leaf(int x) { sunk = x; if (x & 1) longjmp(away, 1); return x; }
FUNC int inner(int x) { volatile char b[40]; b[x & 15] = x; return leaf(x) + b[x & 15]; }
FUNC int middle(int x) { volatile char b[90]; b[x & 15] = x; return inner(x) + b[x & 15]; }
FUNC int beyond(int x) { volatile char b[30]; b[x & 15] = x; return middle(x) + b[x & 15]; }
FUNC int outer(int x) { volatile char *b = (char *)alloca(300 + x * 7919u % 4096 * 16); b[x & 15] = x; return beyond(x) + b[x & 15]; }
FUNC int deeper(int x, int n) { volatile char b[20]; b[x & 15] = x; return n == 0 ? outer(x) : deeper(x, n - 1) + b[x & 15]; }
FUNC int again(int x) { if (setjmp(away)) return 1; return deeper(x, x % 7); }

// Functions that nobody calls: with many return probes calls are noted in one table.
#define FILL(n) FUNC long fill_##n(long x) { sunk = x; return x + n; }
#define FILLS(n) FILL(n##0) FILL(n##1) FILL(n##2) FILL(n##3) FILL(n##4) FILL(n##5) FILL(n##6) FILL(n##7)
FILLS(1) FILLS(2) FILLS(3) FILLS(4) FILLS(5) FILLS(6) FILLS(7)

static long rounds;

static void *works(void *arg)
{
    for (long i = 0; i < rounds; i++)
        *(long *)arg += again(i);
    return 0;
}

int main(int argc, char **argv)
{
    char line[64];
    puts("ready");
    fflush(stdout);
    if (argc < 3 || !fgets(line, sizeof line, stdin))
        return 3;
    try {
        throw 1;
    } catch (int) {
    }
    rounds = atol(argv[1]);
    int threads = atoi(argv[2]);
    pthread_t t[64];
    long sums[64] = {0}, sum = 0;
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], 0, works, &sums[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        sum += sums[i];
    }
    printf("done %ld\n", sum);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    return 7;
}
