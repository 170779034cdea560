// Steps itself with the trap flag through calls of work, twice, each time when it has read a
// line, and prints how many traps its handler has seen, how many of them showed an
// address that isn't in its own text, and what the calls gave. With a second argument it
// steps itself, system calls too, until there is a line, and prints how many calls gave
// something else than they should in the place of the last number.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <ucontext.h>

extern char __executable_start, etext;
static volatile unsigned long traps, outside, sum;

__attribute__((noinline)) long work(long n) {
    __asm__ volatile("nop" ::: "memory");
    return n * 5 + 1;
}

static void trap(int sig, siginfo_t *info, void *u) {
    unsigned long pc = ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP];
    (void)sig;
    traps++;
    if (pc < (unsigned long)&__executable_start || pc >= (unsigned long)&etext || (unsigned long)info->si_addr != pc)
        outside++;
}

int main(int argc, char **argv) {
    struct sigaction sa = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    char line[64];
    long n = argc > 1 ? atol(argv[1]) : 1;
    sigaction(SIGTRAP, &sa, 0);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
    if (argc > 2) {
        unsigned long wrong = 0;
        __asm__ volatile("pushfq\n orq $0x100,(%%rsp)\n popfq\n" ::: "cc", "memory");
        for (long i = 0;; i++) {
            struct pollfd in = {.events = POLLIN};
            long had, ready;
            if (work(i) != i * 5 + 1) wrong++;
            had = traps;
            __asm__ volatile("syscall" : "=a"(ready) : "0"(7), "D"(&in), "S"(1), "d"(0) : "rcx", "r11", "memory"); // poll
            if (traps - had < 4) wrong++; // the flag is gone
            if (ready > 0) break;
        }
        __asm__ volatile("pushfq\n andq $~0x100,(%%rsp)\n popfq\n" ::: "cc", "memory");
        if (!fgets(line, sizeof line, stdin)) return 1;
        printf("done %lu %lu %lu\n", traps, outside, wrong);
        fflush(stdout);
    }
    for (int i = 0; argc <= 2 && i < 2 && fgets(line, sizeof line, stdin); i++) {
        traps = outside = sum = 0;
        for (long i = 0; i < n; i++) {
            __asm__ volatile("pushfq\n orq $0x100,(%%rsp)\n popfq\n" ::: "cc", "memory");
            sum += work(i);
            __asm__ volatile("pushfq\n andq $~0x100,(%%rsp)\n popfq\n" ::: "cc", "memory");
        }
        printf("done %lu %lu %lu\n", traps, outside, sum);
        fflush(stdout);
    }
    return fgets(line, sizeof line, stdin) ? 7 : 1;
}
