/* left_children: prints "ready"; from a line on it calls work once, makes a child that does
 * so, too, and waits, and prints "child PID"; the next line ends both. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int n;

__attribute__((noinline)) void work(int x) { n += x; }

int main(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    int done[2];
    if (pipe(done) != 0) return 1;
    work(1);
    pid_t kid = fork();
    if (kid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(2);
        (void)!write(done[1], "x", 1);
        for (;;) pause();
    }
    (void)!read(done[0], line, 1);
    printf("child %d\n", (int)kid);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    kill(kid, SIGKILL);
    waitpid(kid, NULL, 0);
    return 7;
}
