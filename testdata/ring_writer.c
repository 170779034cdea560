// Writes records into a memory file the way detours do, from many threads and
// from signal handlers in the middle of records.
//
//   ring_writer FILE AREA SHIFT RINGS STRIDE SIZE CPUMASK THREADS COUNT MODE
//
// MODE run: every thread writes COUNT hits, then the process ends.
// MODE kill: writes on until it is killed.
// MODE longjmp: now and then a signal handler leaves a record unfinished.
//
// Each hit is first counted under CounterMissed, which no hit of a ring's is: that
// is the program's own count, for the reader's to be compared with.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <x86intrin.h>

static char *file;
static uint64_t area, shift, rings, stride, size, mask;
static long count;
static int endless, jumping;
static __thread sigjmp_buf out;
static __thread volatile int inside, armed;
static __thread volatile uint64_t nested;
static __thread uint32_t self;

// Every 64th hit of a thread is interrupted: place 0 right after the
// reservation, 1 with the length stored, 2 with all but the commit done.
static void interrupt(uint32_t id, uint64_t n, uint64_t place) {
    if (id == self && n % 64 == 0 && n / 64 % 3 == place) pthread_kill(pthread_self(), SIGUSR1);
}

// One hit of probe id with the number n and extra more words; n again in each.
static void hit(uint32_t id, uint64_t n, int extra) {
    unsigned cpu = (unsigned)sched_getcpu() & mask;
    char *a = file + area + ((uint64_t)cpu << shift);
    uint64_t *counters = (uint64_t *)(a + 4096 + id * 56);
    __atomic_add_fetch(&counters[3], 1, __ATOMIC_SEQ_CST);
    uint64_t units = 3 + extra, h = __atomic_load_n((uint64_t *)a, __ATOMIC_RELAXED);
    do {
        if (h + units * 8 - __atomic_load_n((uint64_t *)(a + 64), __ATOMIC_ACQUIRE) > size) {
            __atomic_add_fetch(&counters[2], 1, __ATOMIC_SEQ_CST);
            return;
        }
    } while (!__atomic_compare_exchange_n((uint64_t *)a, &h, h + units * 8, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    inside++;
    interrupt(id, n, 0);
    char *r = file + rings + cpu * stride + (h & (size - 1));
    uint32_t word = id | (uint32_t)units << 20;
    __atomic_store_n((uint32_t *)r, word, __ATOMIC_RELEASE);
    interrupt(id, n, 1);
    __atomic_store_n((uint32_t *)(r + 4), self, __ATOMIC_RELEASE);
    *(volatile uint64_t *)(r + 8) = __rdtsc();
    for (int i = 0; i <= extra; i++) *(volatile uint64_t *)(r + 16 + 8 * i) = n;
    interrupt(id, n, 2);
    inside--;
    __atomic_store_n((uint32_t *)r, word | 1u << 31, __ATOMIC_RELEASE);
}

static void handler(int sig) {
    (void)sig;
    if (!self) return;
    uint64_t n = ++nested;
    hit(self + 100, n, n % 3);
    if (jumping && armed && inside == 1 && n % 2 == 0) {
        inside = 0;
        siglongjmp(out, 1);
    }
}

static void *run(void *arg) {
    volatile uint64_t n = 0;
    self = (uint32_t)(uintptr_t)arg;
    if (sigsetjmp(out, 1)) n = n;  // the hit that was left is lost
    armed = 1;
    while (endless || n < (uint64_t)count) {
        n++;
        hit(self, n, n % 7);
        if (!endless && n % 256 == 0) usleep(500);  // let the reader keep up
    }
    armed = 0;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 11) return 2;
    int fd = open(argv[1], O_RDWR);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 3;
    file = mmap(0, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) return 4;
    area = strtoull(argv[2], 0, 0), shift = strtoull(argv[3], 0, 0);
    rings = strtoull(argv[4], 0, 0), stride = strtoull(argv[5], 0, 0), size = strtoull(argv[6], 0, 0);
    mask = strtoull(argv[7], 0, 0);
    int threads = atoi(argv[8]);
    count = atol(argv[9]);
    endless = !strcmp(argv[10], "kill"), jumping = !strcmp(argv[10], "longjmp");
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaddset(&sa.sa_mask, SIGPROF);
    sigaddset(&sa.sa_mask, SIGUSR1);
    sigaction(SIGPROF, &sa, 0);
    sigaction(SIGUSR1, &sa, 0);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, 0);
    pthread_t th[64];
    for (long i = 0; i < threads && i < 64; i++) pthread_create(&th[i], 0, run, (void *)(i + 1));
    puts("running");
    fflush(stdout);
    for (int i = 0; i < threads && i < 64; i++) pthread_join(th[i], 0);
    return 0;
}
