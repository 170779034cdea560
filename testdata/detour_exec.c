// Runs cases of machine code that a test lays out in a file:
//   detour_exec FILE ENTER CASES SIZE COUNT HEAD HANDLER RESTORER DATA
// FILE starts with {u64 address, offset, bytes, protection} entries, ended by zeros; each is mapped shared at its address.
// ENTER is called with the address of each case (COUNT of SIZE bytes at CASES); the u64 at HEAD is then kept in the case's
// last word. Faults go to the handler at HANDLER.
// Prints the thread's number.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct kaction { uint64_t handler, flags, restorer, mask; };
static uint64_t arg(char **v, int i) { return strtoull(v[i], 0, 16); }

int main(int argc, char **argv) {
    if (argc < 10) return 98;
    int fd = open(argv[1], O_RDWR);
    uint64_t seg[4 * 256];
    if (fd < 0 || pread(fd, seg, sizeof seg, 0) <= 0) return 97;
    for (uint64_t *s = seg; s < seg + 4 * 256 && s[2]; s += 4)
        if (mmap((void *)s[0], s[2], s[3], MAP_SHARED | MAP_FIXED_NOREPLACE, fd, s[1]) != (void *)s[0]) return 96;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    static char stack[1 << 16];
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alt, 0);
    char *data = (char *)arg(argv, 9);
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGTRAP};
    for (int i = 0; i < 3 && arg(argv, 7); i++) {
        struct kaction old, new = {arg(argv, 7), SA_SIGINFO | SA_ONSTACK | 0x04000000 | SA_NODEFER, arg(argv, 8), 0};
        if (syscall(SYS_rt_sigaction, sigs[i], 0, &old, 8)) return 95;
        memcpy(data + 128 + 32 * sigs[i], &old, 32);
        if (syscall(SYS_rt_sigaction, sigs[i], &new, 0, 8)) return 95;
    }
    void (*enter)(char *) = (void (*)(char *))arg(argv, 2);
    char *cases = (char *)arg(argv, 3);
    uint64_t size = arg(argv, 4), count = arg(argv, 5);
    volatile uint64_t *head = (volatile uint64_t *)arg(argv, 6);
    for (uint64_t i = 0; i < count; i++) {
        enter(cases + i * size);
        memcpy(cases + (i + 1) * size - 8, (void *)head, 8);
    }
    printf("%ld\n", syscall(SYS_gettid));
}
