// At a line it calls within() and says so; at the next it forks there; the child returns from that, calls leaf() and
// ends with what both give. The parent prints "child STATUS", 42 if nothing went wrong,
// and ends with status 7 at a further line, without a return or a call.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long leaf(long n) {
    __asm__ volatile("" : "+r"(n)::"memory");
    return n * 3;
}
__attribute__((noinline)) long within(long n) {
    char line[16];
    puts("within"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(3);
    pid_t p = fork();
    if (p) {
        int status = 0;
        waitpid(p, &status, 0);
        printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        fflush(stdout);
        _exit(fgets(line, sizeof line, stdin) ? 7 : 4);
    }
    __asm__ volatile("" : "+r"(n)::"memory");
    return n + 2;
}
int main(void) {
    char line[16];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long w = within(10);
    _exit(leaf(10) + w);
}
