// A signal's handler that interrupts one instruction and stays. It prints
// "ready", calls tick until there is a line, and reads 64 gibibytes by the one
// instruction at the symbol "reads". SIGUSR1's handler, on an alternate stack,
// prints "in", waits for a line and has the instruction read one byte more. It
// prints "done LEFT", the bytes that are left to read, and ends with status 7
// after a further line.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static void interrupt(int sig, siginfo_t *si, void *uc) {
    char c;
    (void)sig, (void)si;
    if (write(1, "in\n", 3) != 3 || read(0, &c, 1) != 1) _exit(1);
    ((ucontext_t *)uc)->uc_mcontext.gregs[REG_RCX] = 1;
}

__attribute__((noinline, noclone)) long scan(const void *at, long n) {
    __asm__ volatile(".globl reads\nreads: rep lodsb" : "+S"(at), "+c"(n) : : "rax", "memory");
    return n;
}

__attribute__((noinline, noclone)) int tick(void) { return poll(&(struct pollfd){.events = POLLIN}, 1, 1); }

int main(void) {
    char line;
    const long size = 64L << 30;
    void *mem = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
    struct sigaction sa = {.sa_sigaction = interrupt, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    if (mem == MAP_FAILED || sigaltstack(&st, 0) || sigaction(SIGUSR1, &sa, 0)) return 1;
    puts("ready");
    fflush(stdout);
    while (tick() == 0) {}
    if (read(0, &line, 1) != 1) return 1;
    printf("done %ld\n", scan(mem, size));
    fflush(stdout);
    if (read(0, &line, 1) != 1) return 1;
    return 7;
}
