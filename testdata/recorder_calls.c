/* recorder_calls THREADS FILE [storm|jumps] [paced]: prints "ready", and from a line on has THREADS
 * threads call hit(N, N * K, THREAD) for N = 1, 2, …, as fast as they can, until the next
 * line; then it prints "done CALLS JUMPS" and waits for another. FILE, which it maps shared,
 * has for each thread how many calls it has begun and how many have returned. With storm
 * each thread gets SIGPROF all the time, whose handler calls hit2, and one more thread
 * forks and spawns; children call hit. With jumps the handlers leave some calls of hit by
 * siglongjmp, too, JUMPS in all, at least one. With paced threads sleep between some calls. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define K 0x9E3779B97F4A7C15u
#define MOST 64

struct count { volatile uint64_t begun, returned, pad[6]; };
static struct count *counts;
static volatile int stop, paced;
static volatile uint64_t handled;
static __thread sigjmp_buf out;
static volatile int jumps;
static volatile uint64_t jumped;
static __thread volatile int inside;

__attribute__((noinline)) uint64_t hit(uint64_t n, uint64_t check, uint64_t thread) {
    __asm__ volatile("" : "+r"(n), "+r"(check), "+r"(thread) : : "memory");
    return n + check + thread;
}

__attribute__((noinline)) void hit2(uint64_t n) { __asm__ volatile("" : "+r"(n) : : "memory"); }

static void prof(int sig) {
    uint64_t n = __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
    hit2(n);
    if (jumps && inside && n % 7 == 0) {
        inside = 0;
        __atomic_add_fetch(&jumped, 1, __ATOMIC_RELAXED);
        siglongjmp(out, 1);
    }
}

static void *run(void *p) {
    uint64_t t = (uintptr_t)p;
    volatile uint64_t n = 0;
    while (!stop) {
        n++;
        counts[t].begun = n;
        if (jumps) {
            if (sigsetjmp(out, 1) == 0) {
                inside = 1;
                hit(n, n * K, t);
                inside = 0;
            }
        } else {
            hit(n, n * K, t);
        }
        counts[t].returned = n;
        if (paced && n % 16 == 0)
            usleep(1);
    }
    return NULL;
}

static void *births(void *p) {
    extern char **environ;
    while (!stop) {
        pid_t kid = fork();
        if (kid == 0) {
            for (uint64_t n = 1; n < 100; n++)
                hit(~n, 0, 99);
            _exit(0);
        }
        if (kid > 0)
            waitpid(kid, NULL, 0);
        char *argv[] = {"true", NULL};
        if (posix_spawnp(&kid, "true", NULL, NULL, argv, environ) == 0)
            waitpid(kid, NULL, 0);
        usleep(2000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = atoi(argv[1]), storm = argc > 3 && strcmp(argv[3], "paced") != 0;
    jumps = argc > 3 && strcmp(argv[3], "jumps") == 0;
    paced = argc > 3 && strcmp(argv[argc - 1], "paced") == 0;
    int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (threads > MOST || fd < 0 || ftruncate(fd, MOST * sizeof *counts) != 0)
        return 2;
    counts = mmap(NULL, MOST * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[64];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    if (storm) {
        struct sigaction act = {.sa_handler = prof, .sa_flags = SA_RESTART};
        sigaction(SIGPROF, &act, NULL);
        struct itimerval every = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_PROF, &every, NULL);
    }
    pthread_t ids[MOST], birth;
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, run, (void *)(uintptr_t)i);
    if (storm)
        pthread_create(&birth, NULL, births, NULL);
    while (!fgets(line, sizeof line, stdin))
        if (feof(stdin))
            return 4;
    for (int ms = 0; jumps && !jumped && ms < 20000; ms++)
        usleep(1000);
    stop = 1;
    uint64_t sum = 0;
    if (storm)
        pthread_join(birth, NULL);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += counts[i].begun;
    }
    if (storm) {
        struct itimerval none = {{0, 0}, {0, 0}};
        setitimer(ITIMER_PROF, &none, NULL);
    }
    printf("done %llu %llu\n", (unsigned long long)sum, (unsigned long long)jumped);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 5;
}
