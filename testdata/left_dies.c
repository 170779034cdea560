/* left_dies HOW FILE: prints "ready", and from a line on has two threads call first(N, N * K, THREAD) and
 * second(P, N, N * K, THREAD) for N = 1, 2, …. FILE, which it maps shared, has how many such pairs each thread has begun
 * and how many have returned. On another line, it dies by HOW:
 *   fault    a thread writes to where no memory is
 *   covered  second reads where no memory is, by its first instruction
 *   abort    a thread calls abort
 *   quit     it sends itself SIGQUIT */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define K 0x9E3779B97F4A7C15u
#define MOST 64

static struct count { volatile uint64_t begun, returned, pad[6]; } *counts;
static const char *how;
static volatile int die;
static const uint64_t word = 1;

__attribute__((noinline)) uint64_t first(uint64_t n, uint64_t check, uint64_t thread) {
    __asm__ volatile("" : "+r"(n), "+r"(check), "+r"(thread) : : "memory");
    return n + check + thread;
}

uint64_t second(const uint64_t *p, uint64_t n, uint64_t check, uint64_t thread);
__asm__(".text\n"
        ".globl second\n"
        ".type second, @function\n"
        "second:\n"
        "mov (%rdi), %rax\n"
        "add %rsi, %rax\n"
        "add %rdx, %rax\n"
        "ret\n"
        ".size second, .-second\n");

static void dies(uint64_t n) {
    if (!strcmp(how, "fault"))
        *(volatile int *)8 = 1;
    if (!strcmp(how, "covered")) {
        counts[0].begun = n + 1;
        first(n + 1, (n + 1) * K, 0);
        second(NULL, n + 1, (n + 1) * K, 0);
    }
    if (!strcmp(how, "abort"))
        abort();
    kill(getpid(), SIGQUIT);
    for (;;)
        pause();
}

static void *run(void *p) {
    uint64_t t = (uintptr_t)p;
    for (uint64_t n = 1;; n++) {
        counts[t].begun = n;
        first(n, n * K, t);
        second(&word, n, n * K, t);
        counts[t].returned = n;
        if (die && t == 0)
            dies(n);
        if (n % 16 == 0)
            usleep(1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    if (argc != 3 || fd < 0 || ftruncate(fd, MOST * sizeof *counts) != 0)
        return 2;
    how = argv[1];
    counts = mmap(NULL, MOST * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    for (int i = 0; i < 2; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, run, (void *)(uintptr_t)i))
            return 4;
    }
    if (!fgets(line, sizeof line, stdin))
        return 5;
    die = 1;
    for (;;)
        pause();
}
