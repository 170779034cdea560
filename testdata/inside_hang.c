// A program whose threads hang in known ways, each after a line on standard input: two
// in each other's mutex, one in a loop, one in a pipe below three calls of holds, one
// that waits for a child. It prints "ready PIDs…", then "done", and ends with a further
// line.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static atomic_int in;
static int ends[2];
static volatile long turns;

NOINLINE int locks(pthread_mutex_t *a, pthread_mutex_t *b) {
    pthread_mutex_lock(a);
    for (in++; in < 2;) usleep(1000);
    int r = pthread_mutex_lock(b);
    asm volatile("");
    return r;
}
NOINLINE long spins(void) { for (;;) turns++; return turns; }
NOINLINE int holds(int n) {
    char c;
    int r = n ? holds(n - 1) : (int)read(ends[0], &c, 1);
    asm volatile("");
    return r + n;
}
NOINLINE int awaits(int child) { int r = waitpid(child, 0, 0); asm volatile(""); return r; }

static void *first(void *p) { locks(&one, &two); return p; }
static void *second(void *p) { locks(&two, &one); return p; }
static void *third(void *p) { spins(); return p; }
static void *fourth(void *p) { holds(2); return p; }
static void *fifth(void *p) { awaits((int)(long)p); return 0; }

int main(void) {
    char line[8];
    pthread_t t;
    if (pipe(ends)) return 1;
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    int child = fork();
    if (child == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); close(ends[1]); pause(); _exit(0); }
    pthread_create(&t, 0, first, 0);
    pthread_create(&t, 0, second, 0);
    pthread_create(&t, 0, third, 0);
    pthread_create(&t, 0, fourth, 0);
    pthread_create(&t, 0, fifth, (void *)(long)child);
    printf("done\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    kill(child, 9);
    _exit(7);
}
