// Single-steps one case of machine code (as detour_exec.c lays it out) and logs each instruction in a range:
//   detour_step FILE ENTER CASE LO HI LOG HANDLER RESTORER DATA
// The case's flags have TF. LOG: a u64 count, then from LOG+4096 on entries of 2048 bytes: ip, 16 registers as instructions count
// them, flags, the 64 bytes at DATA unless that is 0, and at 256 the bytes from the stack pointer on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct kaction { uint64_t handler, flags, restorer, mask; };
static uint64_t lo, hi, count;
static char *log_at, *data;
static int been;

static void step(int sig, siginfo_t *si, void *arg) {
    ucontext_t *u = arg;
    greg_t *g = u->uc_mcontext.gregs;
    static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    uint64_t ip = g[REG_RIP];
    if (ip < lo || ip >= hi) {
        if (been && ip < 0x20000000) g[REG_EFL] &= ~0x100L;
        return;
    }
    been = 1;
    uint64_t *e = (uint64_t *)(log_at + 4096 + 2048 * count);
    e[0] = ip;
    for (int i = 0; i < 16; i++) e[1 + i] = g[order[i]];
    e[17] = g[REG_EFL];
    if (data) memcpy(e + 18, data, 64);
    memcpy(e + 32, (char *)g[REG_RSP], 1792);
    *(uint64_t *)log_at = ++count;
}

int main(int argc, char **argv) {
    uint64_t v[10], seg[4 * 256];
    if (argc < 10) return 98;
    for (int i = 2; i < 10; i++) v[i] = strtoull(argv[i], 0, 16);
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || pread(fd, seg, sizeof seg, 0) <= 0) return 97;
    for (uint64_t *s = seg; s < seg + 4 * 256 && s[2]; s += 4)
        if (mmap((void *)s[0], s[2], s[3], MAP_SHARED | MAP_FIXED_NOREPLACE, fd, s[1]) != (void *)s[0]) return 96;
    lo = v[4], hi = v[5], log_at = (char *)v[6], data = (char *)v[9];
    static char stack[1 << 16];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alt, 0);
    struct kaction new = {v[7], SA_SIGINFO | SA_ONSTACK | 0x04000000 | SA_NODEFER, v[8], 0};
    syscall(SYS_rt_sigaction, SIGSEGV, &new, 0, 8);
    struct sigaction sa = {.sa_sigaction = step, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGTRAP, &sa, 0);
    ((void (*)(uint64_t))v[2])(v[3]);
    return 0;
}
