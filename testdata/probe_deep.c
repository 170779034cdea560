// Calls that are in each other. Usage: probe_deep COUNT THREADS [fork]
// As probe_calls it prints "ready", waits for a line, works, prints "done SUM"
// and ends after another line. With fork the innermost call forks, and the
// child returns through the same calls.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static int forks, child;
static long count;

NOINLINE long deep(long n) {
    asm volatile("");
    if (n == 0) {
        if (!forks) return 1;
        pid_t p = fork();
        if (p == 0) { child = 1; return 2; }
        int st;
        waitpid(p, &st, 0);
        return WIFEXITED(st) && WEXITSTATUS(st) == 38 ? 1 : -1000000;
    }
    long r = deep(n - 1);
    asm volatile("");
    return r + n;
}
NOINLINE long top(long n) { asm volatile(""); return deep(n) + 1; }

static void *run(void *arg) {
    long sum = 0;
    for (long i = 0; i < count; i++) {
        sum += top(forks ? 8 : 50);
        if (child) _exit(sum - (i * 38) - 1); // 36 + 2
    }
    *(long *)arg = sum;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    count = atol(argv[1]);
    int n = atoi(argv[2]);
    forks = argc > 3;
    char line[64];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long sums[16] = {0}, total = 0;
    pthread_t t[16];
    for (int i = 1; i < n; i++) pthread_create(&t[i], 0, run, &sums[i]);
    run(&sums[0]);
    for (int i = 1; i < n; i++) pthread_join(t[i], 0);
    for (int i = 0; i < n; i++) total += sums[i];
    printf("done %ld\n", total); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
