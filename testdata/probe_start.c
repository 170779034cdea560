// Two threads that call work, which gets the number of its thread, from the
// program's beginning until a line comes on its input or the input ends. It
// prints "calls N".
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static long calls;
static int stop;

__attribute__((noinline, noclone)) long work(long a, int tid) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    __asm__ volatile("" : : "r"(tid));
    return a * 3;
}

static void *run(void *arg) {
    for (long i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        if (work(i, gettid()) != 3 * i) return arg;
        usleep(200);
    }
    return 0;
}

int main(void) {
    pthread_t t;
    void *bad;
    if (pthread_create(&t, 0, run, &t)) return 1;
    while (poll(&(struct pollfd){.events = POLLIN}, 1, 1) == 0) work(1, gettid());
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    if (pthread_join(t, &bad) || bad) return 1;
    printf("calls %ld\n", calls);
    return 0;
}
