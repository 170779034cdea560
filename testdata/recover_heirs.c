// A program that works in a thread, and at a line on standard input makes a
// process that makes another. It prints "ready", then "forked CHILD GRANDCHILD";
// all of them work until a further line, when it prints "done BAD", BAD being how
// many results were wrong, and ends with status 7 after a third.
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long *shared; // stop, bad, grandchild
__attribute__((noinline, noclone)) long work(long a) { __asm__ volatile("" ::: "memory"); return a < 0 ? -a : a * 3 + 1; }
static void spin(void) {
    for (long i = 0; !shared[0]; i++)
        if (work(i & 1023) != (i & 1023) * 3 + 1) __atomic_add_fetch(&shared[1], 1, __ATOMIC_RELAXED);
}
static void *run(void *arg) { spin(); return arg; }
int main(void) {
    char line[64];
    int st;
    pthread_t t;
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_create(&t, 0, run, 0);
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    pid_t kid = fork();
    if (kid == 0) {
        if ((kid = fork()) == 0) { spin(); _exit(5); }
        shared[2] = kid;
        spin();
        if (waitpid(kid, &st, 0) != kid || st != 5 << 8) shared[1]++;
        _exit(5);
    }
    while (!shared[2]) usleep(1000);
    printf("forked %d %ld\n", (int)kid, shared[2]); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    shared[0] = 1;
    pthread_join(t, 0);
    if (waitpid(kid, &st, 0) != kid || st != 5 << 8) shared[1]++;
    printf("done %ld\n", shared[1]); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 6;
    return 7;
}
