/* trap_blocked HOW: what a breakpoint without a tracer does to a program whose SIGTRAP has a
 * handler that takes it: prints "taken" if the handler ran. open: nothing else is done. mask: the
 * thread blocks SIGTRAP by the C library's call; raw: by a system call of its own; handler: it is
 * in a handler whose mask is full; inherited: in a thread that was made while it was blocked; sigreturn:
 * a handler changes the mask that it returns to. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int taken;

static void trap(int sig, siginfo_t *si, void *ctx) {
    (void)sig, (void)si, (void)ctx;
    taken = 1;
}

static void probed(void) { __asm__ volatile("int3"); }

static void said(void) {
    printf(taken ? "taken\n" : "lost\n");
    fflush(stdout);
}

static void *thread(void *p) {
    probed();
    return p;
}

static void usr(int sig) {
    (void)sig;
    probed();
}

static void usr2(int sig, siginfo_t *si, void *ctx) {
    (void)sig, (void)si;
    sigaddset(&((ucontext_t *)ctx)->uc_sigmask, SIGTRAP);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "open";
    struct sigaction sa = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGTRAP, &sa, NULL);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    if (strcmp(how, "open") == 0) {
        probed();
    } else if (strcmp(how, "mask") == 0) {
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        probed();
    } else if (strcmp(how, "raw") == 0) {
        uint64_t m = ~0ull;
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &m, NULL, 8);
        probed();
    } else if (strcmp(how, "handler") == 0) {
        struct sigaction u = {.sa_handler = usr, .sa_mask = all};
        sigaction(SIGUSR1, &u, NULL);
        raise(SIGUSR1);
    } else if (strcmp(how, "inherited") == 0) {
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        pthread_t id;
        pthread_create(&id, NULL, thread, NULL);
        pthread_join(id, NULL);
    } else if (strcmp(how, "sigreturn") == 0) {
        struct sigaction u = {.sa_sigaction = usr2, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR2, &u, NULL);
        raise(SIGUSR2);
        probed();
    } else {
        return 2;
    }
    said();
    return 7;
}
