// Executes one-byte opcodes, each before several kinds of bytes and as the last
// of a mapping, and prints what signal came and how far the instruction pointer
// was: BYTE SIGNAL OFFSET.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf back;
static volatile long rip;

static void handler(int sig, siginfo_t *si, void *uc) {
    (void)si;
    rip = (long)((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, sig);
}

int main(int argc, char **argv) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &sa, 0);
    sigaction(SIGTRAP, &sa, 0);
    sigaction(SIGSEGV, &sa, 0);
    sigaction(SIGBUS, &sa, 0);
    unsigned char *page = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 3;
    munmap(page + 4096, 4096);
    for (int i = 1; i < argc; i++) {
        unsigned b = strtoul(argv[i], 0, 16);
        for (int fill = 0; fill < 5; fill++) {
            static const unsigned char with[] = {0x00, 0xff, 0x90, 0x24, 0xc3};
            unsigned char *at = fill == 4 ? page + 4095 : page + 64;
            memset(page, with[fill], 4096);
            *at = b;
            int sig = sigsetjmp(back, 1);
            if (!sig) {
                ((void (*)(void))at)();
                return 4;
            }
            printf("%02x %d %ld\n", b, sig, rip - (long)at);
        }
    }
}
