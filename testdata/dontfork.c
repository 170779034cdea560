// Has kprobe's mappings left out of its children (MADV_DONTFORK), and makes some that call
// what is probed; prints how many mappings that were, and how many children went wrong.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long work(long n) {
    __asm__ volatile("" : "+r"(n)::"memory");
    return n * 3;
}

int main(void) {
    char line[512];
    int n = 0, bad = 0;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char prot[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, prot) != 3)
            continue;
        if (strstr(line, "memfd:kprobe") || (prot[2] == 'x' && !strchr(line, '/') && !strchr(line, '[')))
            n += madvise((void *)from, to - from, MADV_DONTFORK) == 0;
    }
    for (int i = 0; i < 20; i++) {
        bad += work(i) != 3 * i;
        pid_t p = i & 1 ? vfork() : fork();
        if (p == 0)
            _exit(work(2) != 6);
        int status;
        waitpid(p, &status, 0);
        bad += status != 0;
    }
    printf("done %d %d\n", n, bad);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 1;
}
