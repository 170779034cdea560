// A program to probe. Usage: probe_calls MODE COUNT [THREADS]
// It waits for a line on standard input after printing "ready", runs MODE
// COUNT times on each thread, and prints "done SUM": a sum that any damage to
// registers, flags, stack or memory would change. With a further line it ends.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <spawn.h>

#define NOINLINE __attribute__((noinline, noclone))
extern char **environ;
struct pair { int32_t a; int64_t b; char name[16]; struct pair *next; };
int64_t global_number = 0x1122334455667788;
char global_text[] = "global text";
struct pair pairs[2] = {{7, -8, "first", &pairs[1]}, {9, 10, "second", 0}};

NOINLINE long work(long a, const char *s) { asm volatile(""); return a * 3 + s[0]; }
NOINLINE long pair_sum(struct pair *p, unsigned char c, int neg) { return p->a + p->b + c + neg; }
NOINLINE long many(long a, long b, long c, long d, long e, long f, long g, long h) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; }
NOINLINE double real(double x, float y) { return x * 2 + y; }

// Keeps data in the red zone across the whole body.
NOINLINE long red_zone(long a) {
    long r;
    asm volatile("movq %1,-8(%%rsp)\n\tmovq $77,-120(%%rsp)\n\tnop\n\tcmpq $5,%1\n\tnop\n\tjl 1f\n\tincq -8(%%rsp)\n1:\tmovq -8(%%rsp),%0\n\taddq -120(%%rsp),%0"
                 : "=&r"(r) : "r"(a) : "memory", "cc");
    return r;
}
NOINLINE long recurse(long n) { asm volatile(""); if (n == 0) return 1; long r = recurse(n - 1); asm volatile(""); return r + n; }
NOINLINE long tail_b(long n) { asm volatile(""); return n * 5; }
NOINLINE long tail_a(long n) { asm volatile(""); return tail_b(n + 1); }
NOINLINE long ping(long n);
NOINLINE long pong(long n) { asm volatile(""); return n ? ping(n - 1) : 42; }
NOINLINE long ping(long n) { asm volatile(""); return n ? pong(n - 1) : 43; }
static __thread jmp_buf jb;
NOINLINE void deep(long n) { asm volatile(""); if (n == 0) longjmp(jb, 1); deep(n - 1); asm volatile(""); }
NOINLINE long jumper(long n) { if (setjmp(jb) == 0) deep(n & 7); return n; }
NOINLINE long loops(long n) { long s = 0; for (long i = 0; i < n; i++) { s += i ^ (s >> 3); } return s; }
NOINLINE long switcher(long n) {
    switch (n % 9) {
    case 0: return 11; case 1: return n * 2; case 2: return 13 + n; case 3: return n ^ 5; case 4: return 99;
    case 5: return n - 4; case 6: return n / 3; case 7: return 1 - n; default: return n * n; }
}
NOINLINE long indirect(long (*f)(long, const char *), long n) { return f(n, "x") + 1; }
NOINLINE long strings(const char *s) { return (long)strlen(s); }

static long one(const char *mode, long i) {
    if (!strcmp(mode, "work")) return work(i, "hello");
    if (!strcmp(mode, "pair")) { pairs[0].b = i; return pair_sum(&pairs[0], (unsigned char)i, -(int)(i & 15)); }
    if (!strcmp(mode, "many")) return many(i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7);
    if (!strcmp(mode, "real")) return (long)real(i + 0.5, 1.25f);
    if (!strcmp(mode, "red")) return red_zone(i);
    if (!strcmp(mode, "recurse")) return recurse(i % 6);
    if (!strcmp(mode, "tail")) return tail_a(i);
    if (!strcmp(mode, "ping")) return ping(i & 31);
    if (!strcmp(mode, "jump")) return jumper(i);
    if (!strcmp(mode, "loops")) return loops(i & 15);
    if (!strcmp(mode, "switch")) return switcher(i);
    if (!strcmp(mode, "indirect")) return indirect(i & 1 ? work : (long (*)(long, const char *))red_zone, i);
    if (!strcmp(mode, "strings")) { char b[32]; snprintf(b, sizeof b, "item %ld", i); return strings(b); }
    if (!strcmp(mode, "fork")) {
        fflush(stdout); // else the child would print it again
        pid_t p = fork();
        if (p == 0) { long r = 0; for (int k = 0; k < 20; k++) r += work(k, "child"); _exit((int)(r % 100)); }
        int st; waitpid(p, &st, 0); return WIFEXITED(st) ? WEXITSTATUS(st) + work(i, "parent") : -1000000;
    }
    if (!strcmp(mode, "spawn")) {
        pid_t p; char *av[] = {"true", 0};
        if (posix_spawnp(&p, "true", 0, 0, av, environ)) return -1;
        int st; waitpid(p, &st, 0); return WIFEXITED(st) ? WEXITSTATUS(st) + work(i, "p") : -1000000;
    }
    fprintf(stderr, "no mode %s\n", mode); exit(2);
}
static const char *mode; static long count;
static void *run(void *arg) {
    long sum = 0;
    for (long i = 0; i < count; i++) sum += one(mode, i);
    *(long *)arg = sum;
    return 0;
}
static void *brief(void *arg) { *(long *)arg = work((long)(intptr_t)arg & 1, "t"); return 0; }
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    mode = argv[1]; count = atol(argv[2]);
    int n = argc > 3 ? atoi(argv[3]) : 1;
    char line[64];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long sums[64] = {0}, total = 0; pthread_t t[64];
    if (!strcmp(mode, "churn")) { // short-lived threads
        for (long i = 0; i < count; i++) { long r = 0; pthread_create(&t[0], 0, brief, &r); pthread_join(t[0], 0); total += r; }
    } else {
        for (int i = 1; i < n; i++) pthread_create(&t[i], 0, run, &sums[i]);
        run(&sums[0]);
        for (int i = 1; i < n; i++) pthread_join(t[i], 0);
        for (int i = 0; i < n; i++) total += sums[i];
    }
    printf("done %ld\n", total); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
