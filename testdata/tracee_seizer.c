// Traces the process PID, and takes a while to end: its memory must be freed
// before the kernel lets go what it traces. Prints "ready" and waits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const size_t size = 192 << 20;
    char *mem = argc > 1 ? malloc(size) : 0;
    if (!mem || ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0)) return 2;
    memset(mem, 1, size);
    printf("%d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
