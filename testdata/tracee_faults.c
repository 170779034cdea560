// Threads that raise faults of every kind without end, each repaired by its handler.
// Usage: tracee_faults THREADS [pending]. It prints its process id, and "ready" for a
// line, and ends when its input does, with status 0 if no handler was called for
// anything but such a fault. With pending, each thread has a SIGTRAP and a SIGSEGV of its own
// waiting that it blocks, and loops.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern char ill[], behind_ill[], segv[], behind_segv[], fpe[], behind_fpe[];
void faults(void);
__asm__(".text\n.globl faults\nfaults:\n ill: ud2\n behind_ill: xorl %eax,%eax\n segv: movl (%rax),%ecx\n behind_segv: xorl %edx,%edx\n xorl %ecx,%ecx\n"
        " fpe: divl %ecx\n behind_fpe: ret\n");
static volatile int bad, stop;
static void on_fault(int sig, siginfo_t *si, void *ctx) {
    greg_t *ip = &((ucontext_t *)ctx)->uc_mcontext.gregs[REG_RIP];
    char *at = (char *)*ip;
    if (si->si_code <= 0) bad = 1;
    if (sig == SIGILL && at == ill) *ip = (greg_t)behind_ill;
    else if (sig == SIGSEGV && at == segv) *ip = (greg_t)behind_segv;
    else if (sig == SIGFPE && at == fpe) *ip = (greg_t)behind_fpe;
    else _exit(9);
}
static int waits;
static void *run(void *arg) {
    if (waits) {
        sigset_t set;
        sigemptyset(&set); sigaddset(&set, SIGTRAP); sigaddset(&set, SIGSEGV);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        pthread_kill(pthread_self(), SIGTRAP);
        siginfo_t si = {.si_signo = SIGSEGV, .si_code = SEGV_MAPERR};
        syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGSEGV, &si);
        while (!stop) {}
        return NULL;
    }
    while (!stop) faults();
    return arg;
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &sa, NULL); sigaction(SIGSEGV, &sa, NULL); sigaction(SIGFPE, &sa, NULL);
    printf("%d\n", getpid()); fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 3;
    waits = argc > 2 && !strcmp(argv[2], "pending");
    pthread_t th[8];
    for (int i = 0; i < n && i < 8; i++) pthread_create(&th[i], NULL, run, NULL);
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {}
    stop = 1;
    for (int i = 0; i < n && i < 8; i++) pthread_join(th[i], NULL);
    return bad;
}
