// Threads that call functions while everything disturbs them that can:
//   sequences THREADS CALLS HOW
// Prints "ready", works after a line, and prints "done TICKS MARKS OWN COUNTED ABORTED": how often tick and mark were called, how
// often the program's own per-CPU counter was added to, which it does in restartable sequences, what the counter says, and how
// often one of its sequences was aborted. mark is given the number of its call by the thread, that in the upper half, and its
// complement. It ends with status 7 after another line. Exits with 77 where the C library has no rseq areas.
// HOW: letters. s: signals, whose handler ticks; m: threads are moved between CPUs; b: threads come and go, ticking; v: vfork
// children tick; w: children that share the memory as those of posix_spawn do tick; f: forks; c: a thread of raw clone, with the
// control block of its parent, ticks; u: half of the threads have unregistered their areas.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern const ptrdiff_t __rseq_offset;
extern const unsigned int __rseq_size;

__attribute__((noipa, aligned(64))) void tick(long a) { asm volatile("leaq 0x1234(%%rdi), %%rax" ::: "rax"); }
__attribute__((noipa, aligned(64))) void mark(long a, long b) { asm volatile("leaq 0x1235(%%rsi), %%rax" ::: "rax"); }
__attribute__((noipa, aligned(64))) long twice(long a) { asm volatile("leaq 0x1236(%%rdi), %%rax" ::: "rax"); return 2 * a; }

static long calls;
static const char *how;
static volatile int stop;
static long ticks, own, aborted;
static __thread long ticked;
static struct { uint64_t n, pad[7]; } counter[4096];
static struct { uint64_t n, pad[7]; } locked;

static void add(long *to, long n) { __atomic_fetch_add(to, n, __ATOMIC_RELAXED); }

// bump adds one to the counter of the CPU. As others do it leaves the address of its
// sequence behind, if lazy.
__attribute__((noinline)) static int bump(int lazy) {
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    if (*(int32_t *)(area + 4) < 0) return 0;
    __asm__ goto volatile(
        ".pushsection __rseq_cs, \"aw\"\n .balign 32\n 7: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
        ".pushsection __rseq_cs_ptr_array, \"aw\"\n .quad 7b\n .popsection\n"
        "leaq 7b(%%rip), %%rax\n movq %%rax, 8(%0)\n"
        "1: movl 4(%0), %%eax\n shlq $6, %%rax\n movq (%1, %%rax), %%rcx\n incq %%rcx\n movq %%rcx, (%1, %%rax)\n"
        "2: jmp 5f\n .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
        "4: jmp %l[again]\n"
        "5:" ::"r"(area), "r"(counter) : "rax", "rcx", "memory", "cc" : again);
    if (!lazy) *(volatile uint64_t *)(area + 8) = 0;
    return 1;
again:
    add(&aborted, 1);
    return -1;
}

static void handler(int sig) {
    tick(0);
    ticked++;
}

static void *work(void *arg) {
    long t = (long)arg, bumped = 0;
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    if (strchr(how, 'u') && t & 1 && syscall(SYS_rseq, area, 32, 1, 0x53053053)) exit(95);
    for (long i = 0; i < calls; i++) {
        mark(t << 32 | i, ~(t << 32 | i));
        tick(i);
        if (twice(i) != 2 * i) exit(94);
        int r = -1;
        while (r < 0) r = bump(t & 2);
        if (r) bumped++;
        tick(i);
    }
    add(&own, bumped);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    add(&ticks, ticked + 2 * calls);
    return 0;
}

static void *brief(void *arg) {
    tick(1);
    add(&ticks, 1);
    return 0;
}

static int raw(void *arg) {
    long n = 0;
    for (; !stop; n++) tick(n);
    *(volatile long *)arg = n;
    return 0;
}

static int shares(void *arg) {
    for (int i = 0; i < 20; i++) tick(i);
    return 0;
}

static pthread_t threads[256];
static long count;

static void *disturb(void *arg) {
    char kind = *(char *)arg;
    unsigned seed = 1;
    while (!stop) {
        long t = rand_r(&seed) % count;
        if (kind == 's') pthread_kill(threads[t], SIGUSR1), usleep(50);
        if (kind == 'm') {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(rand_r(&seed) % sysconf(_SC_NPROCESSORS_ONLN), &one);
            pthread_setaffinity_np(threads[t], sizeof one, &one);
            usleep(100);
        }
        if (kind == 'b') {
            pthread_t p;
            if (!pthread_create(&p, 0, brief, 0)) pthread_join(p, 0);
        }
        if (kind == 'v') {
            pid_t pid = vfork();
            if (pid == 0) {
                for (int i = 0; i < 20; i++) tick(i);
                _exit(0);
            }
            if (pid > 0) waitpid(pid, 0, 0), add(&ticks, 20);
            usleep(1000);
        }
        if (kind == 'w') {
            static char stack[1 << 16];
            pid_t pid = clone(shares, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
            if (pid > 0) waitpid(pid, 0, 0), add(&ticks, 20);
            usleep(500);
        }
        if (kind == 'f') {
            pid_t pid = fork();
            if (pid == 0) _exit(0);
            waitpid(pid, 0, 0);
            usleep(5000);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    char line[8];
    if (argc < 4) return 98;
    count = atol(argv[1]), calls = atol(argv[2]), how = argv[3];
    if (__rseq_size == 0) return 77;
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, 0);
    puts("ready"), fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 97;
    pthread_t d[8];
    int n = 0;
    for (long t = 0; t < count; t++) pthread_create(&threads[t], 0, work, (void *)t);
    static long rawTicks;
    static char stack[1 << 16];
    if (strchr(how, 'c')) clone(raw, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, &rawTicks);
    for (const char *h = how; *h; h++)
        if (strchr("smbvwf", *h)) pthread_create(&d[n++], 0, disturb, (void *)h);
    // A thread that has ended can't be signalled: they are joined behind the disturbers.
    while (__atomic_load_n(&ticks, __ATOMIC_RELAXED) < 2 * calls * count) usleep(1000);
    stop = 1;
    for (int i = 0; i < n; i++) pthread_join(d[i], 0);
    for (long t = 0; t < count; t++) pthread_join(threads[t], 0);
    if (strchr(how, 'c')) {
        usleep(100000);
        ticks += rawTicks;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 4096; i++) sum += counter[i].n;
    printf("done %ld %ld %ld %lu %ld\n", ticks, count * calls, own, sum, aborted), fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 97;
    return 7;
}
