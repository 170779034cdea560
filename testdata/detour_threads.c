// Calls code that a test lays out in a file (as detour_exec.c maps it; protection bit 3 maps a private copy) on many threads:
//   detour_threads FILE HOW THREADS N ADDR...
// Each thread calls every function N times as f(i, text) and sums what they return. HOW: "plain"; "fork" forks now and then in the
// middle of a call, the child returning from it too; "jump" leaves a call by longjmp now and then.
// The functions may call the u64 function pointer that stands in the memory at 0x10200000, which does that.
// Prints each thread's sum.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static long n;
static char **addrs;
static const char *how;
static __thread jmp_buf out;
static __thread long calls;
static __thread int child;

static long between(long a) {
    calls++;
    if (!strcmp(how, "fork") && calls % 97 == 0 && !child) {
        pid_t pid = fork();
        if (pid == 0) { child = 1; calls = 0; return a; }
        int status;
        if (waitpid(pid, &status, 0) != pid || status != 0) { fprintf(stderr, "child: %x\n", status); _exit(3); }
    }
    if (child && calls > 50) _exit(0);
    if (!strcmp(how, "jump") && calls % 97 == 0) longjmp(out, 1);
    return a;
}

static volatile long handled;
static void handler(int sig) {
    for (char **a = addrs; *a; a++) ((unsigned long (*)(long, const char *))strtoull(*a, 0, 16))(5, "hello, world");
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static sigset_t alarms;
static void *spin(void *arg) {
    pthread_sigmask(SIG_UNBLOCK, &alarms, 0);
    volatile unsigned long sum = 0;
    for (volatile long i = 0; i < n; i++)
        for (char **volatile a = addrs; *a; a++) {
            if (setjmp(out)) continue;
            sum += ((unsigned long (*)(long, const char *))strtoull(*a, 0, 16))(i, "hello, world");
        }
    *(unsigned long *)arg = sum;
    return 0;
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR);
    uint64_t seg[4 * 256];
    if (argc < 6 || fd < 0 || pread(fd, seg, sizeof seg, 0) <= 0) return 97;
    for (uint64_t *s = seg; s < seg + 4 * 256 && s[2]; s += 4) {
        int share = s[3] & 8 ? MAP_PRIVATE : MAP_SHARED;
        if (mmap((void *)s[0], s[2], s[3] & 7, share | MAP_FIXED_NOREPLACE, fd, s[1]) != (void *)s[0]) return 96;
    }
    how = argv[2], n = atol(argv[4]), addrs = argv + 5;
    *(uint64_t *)0x10200000 = (uint64_t)between;
    int threads = atoi(argv[3]);
    if (!strcmp(how, "signal")) {
        // A timer of the processor's own time has the scheduler's ticks only. The signals are for the threads.
        struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER};
        sigaction(SIGALRM, &sa, 0);
        sigemptyset(&alarms);
        sigaddset(&alarms, SIGALRM);
        pthread_sigmask(SIG_BLOCK, &alarms, 0);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 100}, {0, 100}}, 0);
    }
    pthread_t t[64];
    unsigned long sum[64];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], 0, spin, &sum[i]);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    for (int i = 0; i < threads; i++) printf("%lu\n", sum[i]);
    if (!strcmp(how, "signal")) printf("%ld\n", handled);
    fflush(stdout);
    return 0;
}
