/* latency_calls THREADS ROUNDS DEPTH: a program that knows how long its calls
 * take. Each thread calls spin ROUNDS times, for 1 to 512 microseconds, and
 * recurse ROUNDS times to the given depth. For each function it prints
 *
 *   NAME COUNT, and of all calls the sum, the shortest and the longest time from
 *   the first to the last instruction of the call's own, and the same from
 *   before to behind the call
 *
 * in nanoseconds: what is between, whoever measures it, is between these. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef unsigned long long u64;

struct times { u64 sum, min, max; };
struct seen { u64 count; struct times inner, outer; };
static __thread struct seen spun, recursed;

static u64 now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void note(struct times *t, u64 ns, int first) {
    t->sum += ns;
    if (first || ns < t->min)
        t->min = ns;
    if (ns > t->max)
        t->max = ns;
}

/* Gives how long it took as it knows itself. */
NOINLINE u64 spin(u64 ns) {
    u64 begin = now(), end;
    do
        end = now();
    while (end - begin < ns);
    __asm__ volatile("" : : : "memory");
    return end - begin;
}

static u64 timed(u64 (*call)(u64), u64 arg, struct seen *s) {
    u64 begin = now(), inner = call(arg), outer = now() - begin;
    note(&s->inner, inner, s->count == 0);
    note(&s->outer, outer, s->count == 0);
    s->count++;
    return inner;
}

NOINLINE u64 recurse(u64 depth) {
    u64 begin = now();
    if (depth > 0)
        timed(recurse, depth - 1, &recursed);
    __asm__ volatile("" : : : "memory");
    return now() - begin;
}

static int rounds, depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen all_spun, all_recursed;

static void merge(struct times *into, const struct times *t, int first) {
    into->sum += t->sum;
    if (first || t->min < into->min)
        into->min = t->min;
    if (t->max > into->max)
        into->max = t->max;
}

static void add(struct seen *all, const struct seen *s) {
    merge(&all->inner, &s->inner, all->count == 0);
    merge(&all->outer, &s->outer, all->count == 0);
    all->count += s->count;
}

static void *run(void *unused) {
    (void)unused;
    for (int i = 0; i < rounds; i++) {
        timed(spin, 1000ull << (i % 10), &spun);
        timed(recurse, depth, &recursed);
    }
    pthread_mutex_lock(&lock);
    add(&all_spun, &spun);
    add(&all_recursed, &recursed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void show(const char *name, const struct seen *s) {
    printf("%s %llu %llu %llu %llu %llu %llu %llu\n", name, s->count,
           s->inner.sum, s->inner.min, s->inner.max, s->outer.sum, s->outer.min, s->outer.max);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 10;
    depth = argc > 3 ? atoi(argv[3]) : 0;
    pthread_t t[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], 0, run, 0);
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], 0);
    show("spin", &all_spun);
    show("recurse", &all_recursed);
    return 0;
}
