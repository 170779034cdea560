/* cli_loop [N [FILE [PROGRAM ARG...]]]: calls work N times (0: for ever, every
 * 5 ms), after having written its process id to FILE. Then executes PROGRAM, or
 * exits with 7. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) int work(int n, const char *text) {
    __asm__ volatile("" : : "r"(text) : "memory");
    return n * 3 + 1;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 3;
    int sum = 0;
    if (argc > 2) {
        FILE *f = fopen(argv[2], "w");
        if (!f)
            return 1;
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
    }
    for (int i = 0; n == 0 || i < n; i++) {
        sum += work(i, "hello");
        if (n == 0)
            usleep(5000);
    }
    printf("sum %d\n", sum);
    if (argc > 3) {
        fflush(stdout);
        execvp(argv[3], argv + 3);
        return 1;
    }
    return 7;
}
