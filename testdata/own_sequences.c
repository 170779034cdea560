// A program that counts in restartable sequences of its own, the way librseq does:
//   own_sequences THREADS CALLS
// Prints "ready". For each line it has its threads call bump and move CALLS times each, while they are sent from CPU to CPU and
// signals come, and prints "done WANT BUMPED MOVED ABORTED": how often each function had its way, what the counters of all CPUs
// say of either, and whether aborts were no more than calls (few, or many). With the line "q" it
// ends with status 7. Exits with 77 where the C library has no rseq areas.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const ptrdiff_t __rseq_offset;
extern const unsigned int __rseq_size;

static struct { uint64_t bumps, moves, pad[6]; } counter[4096];
static long calls, bumped, aborted;

#ifdef NAMELESS
#define DESCRIPTIONS ".pushsection .data.described, \"aw\"\n"
#define LIST ".pushsection .data.listed, \"aw\"\n"
#else
#define DESCRIPTIONS ".pushsection __rseq_cs, \"aw\"\n"
#define LIST ".pushsection __rseq_cs_ptr_array, \"aw\"\n"
#endif

#define DESCRIBED(start, commit, abort)                                                                \
    DESCRIPTIONS " .balign 32\n 7: .long 0, 0\n .quad " start ", " commit " - " start ", " abort "\n .popsection\n" \
    LIST " .quad 7b\n .popsection\n"                                                                   \
    "leaq 7b(%%rip), %%rax\n " BETWEEN " movq %%rax, 8(%0)\n"

#define BETWEEN ""

// bump adds one to the counter of the CPU. Its handler for aborts is behind it.
__attribute__((noipa)) int bump(char *area) {
    __asm__ goto volatile(
        DESCRIBED("1f", "2f", "4f")
        "1: movl 4(%0), %%eax\n shlq $6, %%rax\n movq (%1, %%rax), %%rcx\n nop\n incq %%rcx\n movq %%rcx, (%1, %%rax)\n"
        "2: leaq 1(%%rcx), %%rcx\n jmp 5f\n .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
        "4: xorl %%eax, %%eax\n jmp %l[again]\n"
        "5: nop\n" ::"r"(area), "r"(counter) : "rax", "rcx", "memory", "cc" : again);
    return 1;
again:
    return 0;
}

// whole is a sequence from its first instruction on. Nobody calls it.
void whole(void);
__asm__(".text\n .byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n 4: ret\n"
        ".type whole, @function\n .globl whole\n whole: nop\n nop\n 2: ret\n .size whole, . - whole\n"
        DESCRIPTIONS " .balign 32\n 7: .long 0, 0\n .quad whole, 2b - whole, 4b\n .popsection\n" LIST " .quad 7b\n .popsection\n");

#undef BETWEEN
#define BETWEEN "nop\n"

// move adds one to another counter, in a sequence that has branches. A jump at the no-op that BETWEEN is would cover what
// announces the sequence. Its handler for aborts lies elsewhere, and the signature is
// a no-op's operand.
__attribute__((noipa)) int move(char *area) {
    __asm__ goto volatile(
        DESCRIBED("1f", "2f", "4f")
        "1: cmpl $0, 4(%0)\n jl %l[again]\n movl 4(%0), %%eax\n shlq $6, %%rax\n addq %1, %%rax\n"
        " movq 8(%%rax), %%rcx\n leaq 1(%%rcx), %%rdx\n cmpq %%rcx, %%rdx\n je 3f\n movq %%rdx, 8(%%rax)\n"
        "2:\n .pushsection .text.unlikely, \"ax\"\n .byte 0x0f, 0x1f, 0x05\n .long 0x53053053\n 4: jmp %l[again]\n .popsection\n"
        "3: nop\n" ::"r"(area), "r"(counter) : "rax", "rcx", "rdx", "memory", "cc" : again);
    return 1;
again:
    return 0;
}

static void handler(int sig) {}

static void *work(void *arg) {
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    long failed = 0;
    for (long i = 0; i < calls; i++) {
        while (!bump(area)) failed++;
        while (!move(area)) failed++;
    }
    __atomic_fetch_add(&bumped, calls, __ATOMIC_RELAXED);
    __atomic_fetch_add(&aborted, failed, __ATOMIC_RELAXED);
    return 0;
}

static pthread_t threads[64];
static long count;
static volatile int stop;

static void *disturb(void *arg) {
    for (unsigned seed = 1; !stop; usleep(100)) {
        long t = rand_r(&seed) % count;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(rand_r(&seed) % sysconf(_SC_NPROCESSORS_ONLN), &one);
        pthread_setaffinity_np(threads[t], sizeof one, &one);
        pthread_kill(threads[t], SIGUSR1);
    }
    return 0;
}

int main(int argc, char **argv) {
    char line[8];
    if (argc < 3) return 98;
    count = atol(argv[1]), calls = atol(argv[2]);
    if (__rseq_size == 0) return 77;
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &sa, 0);
    puts("ready"), fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        pthread_t d;
        for (int i = 0; i < 4096; i++) counter[i].bumps = counter[i].moves = 0;
        bumped = aborted = stop = 0;
        for (long t = 0; t < count; t++) pthread_create(&threads[t], 0, work, 0);
        pthread_create(&d, 0, disturb, 0);
        // A thread that has ended can't be signalled: they are joined behind the disturber.
        while (__atomic_load_n(&bumped, __ATOMIC_RELAXED) < count * calls) usleep(1000);
        stop = 1;
        pthread_join(d, 0);
        for (long t = 0; t < count; t++) pthread_join(threads[t], 0);
        uint64_t sum = 0, went = 0;
        for (int i = 0; i < 4096; i++) sum += counter[i].bumps, went += counter[i].moves;
        printf("done %ld %lu %lu %s\n", bumped, sum, went, aborted <= bumped ? "few" : "many"), fflush(stdout);
    }
    return 7;
}
