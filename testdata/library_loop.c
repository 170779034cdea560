// Threads that load a library, call into it and unload it, again and again.
// Usage: library_loop LIBRARY THREADS ROUNDS. It prints "ready", starts at a
// line, prints "done CALLS MADE WRONG" (calls of part_work, runs of the
// constructor, results that were wrong) and ends at another with status 7.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

long parts_made;
static long calls, wrong;
static const char *path;
static int rounds;

static void *run(void *arg) {
    for (int i = 0; i < rounds; i++) {
        void *h = dlopen(path, RTLD_NOW);
        long (*work)(long) = h ? (long (*)(long))dlsym(h, "part_work") : 0;
        if (!work) { __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED); continue; }
        for (long k = 0; k < 20; k++) {
            if (work(k) != k * 3 + 1) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
            __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
        }
        dlclose(h);
    }
    return arg;
}

int main(int argc, char **argv) {
    pthread_t t[64];
    char line[16];
    path = argv[1];
    int n = argc > 2 ? atoi(argv[2]) : 1;
    rounds = argc > 3 ? atoi(argv[3]) : 10;
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    for (int i = 0; i < n; i++) pthread_create(&t[i], 0, run, 0);
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    printf("done %ld %ld %ld\n", calls, parts_made, wrong); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
