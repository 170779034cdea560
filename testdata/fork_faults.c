// A program that forks and handles its faults. At each of two lines on standard input it forks a child, which faults as it
// does itself afterwards, and prints "done CAUGHT STATUS": the faults that it has caught, and the child's exit status, which
// is the number that the child has caught.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;
static void caught(int sig) { (void)sig; siglongjmp(back, 1); }

__attribute__((noinline)) int load(const volatile int *p) { return *p; }

static int faults(void) {
    volatile int n = 0;
    for (volatile int i = 0; i < 10; i++)
        if (sigsetjmp(back, 1) == 0) load((const volatile int *)8); else n++;
    return n;
}

int main(void) {
    char line[64];
    struct sigaction a = {.sa_handler = caught};
    sigaction(SIGSEGV, &a, 0);
    puts("ready"); fflush(stdout);
    for (int turn = 0; turn < 2; turn++) {
        if (!fgets(line, sizeof line, stdin)) return 3;
        pid_t kid = fork();
        if (kid == 0) _exit(faults());
        int status = 0;
        if (kid < 0 || waitpid(kid, &status, 0) != kid) return 4;
        int n = faults();
        printf("done %d %d\n", n, status >> 8); fflush(stdout);
    }
    if (!fgets(line, sizeof line, stdin)) return 5;
    return 7;
}
