/* let_go_forks MANY: prints "ready"; after a line it makes MANY children one after the other,
 * each of which calls work three times, once in a thread, makes a child of its own that
 * calls it once, and ends. Then come two that stay, of which the second's parent has ended.
 * Each calls work once and "calls N" says how often all have called. At each further line
 * both call it again, then "again PID PID" is printed. The line "end" ends all. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int n;

__attribute__((noinline)) int work(int x) {
    n += x;
    return n;
}

static void *thread(void *arg) {
    work(2);
    return arg;
}

static int asked[2][2], done[2];

/* stay calls work whenever it is asked, and says which process it is. */
static void stay(int which) {
    pid_t self = getpid();
    prctl(PR_SET_PDEATHSIG, which == 0 ? SIGKILL : 0);
    close(asked[which][1]);
    for (char c;;) {
        work(3);
        (void)!write(done[1], &self, sizeof self);
        if (read(asked[which][0], &c, 1) != 1) _exit(0);
    }
}

static void end_of(pid_t kid) {
    int status;
    if (waitpid(kid, &status, 0) != kid || status != 0) {
        printf("a child ended by %#x\n", status);
        exit(1);
    }
}

int main(int argc, char **argv) {
    int many = argc > 1 ? atoi(argv[1]) : 1;
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (int i = 0; i < many; i++) {
        pid_t kid = fork();
        if (kid == 0) {
            pthread_t t;
            work(1);
            if (pthread_create(&t, NULL, thread, NULL) != 0 || pthread_join(t, NULL) != 0) _exit(1);
            work(1);
            if ((kid = fork()) == 0) {
                work(4);
                _exit(0);
            }
            end_of(kid);
            _exit(0);
        }
        end_of(kid);
    }
    if (pipe(done) != 0 || pipe(asked[0]) != 0 || pipe(asked[1]) != 0) return 1;
    pid_t kids[2], middle;
    if (fork() == 0) {
        close(asked[1][1]);
        stay(0);
    }
    if ((middle = fork()) == 0) {
        close(asked[0][1]);
        if (fork() == 0) stay(1);
        _exit(0);
    }
    end_of(middle);
    for (const char *what = "calls";; what = "again") {
        for (int i = 0; i < 2; i++)
            if (read(done[0], &kids[i], sizeof kids[i]) != sizeof kids[i]) return 1;
        if (*what == 'c') printf("calls %d\n", 4 * many + 2);
        else printf("again %d %d\n", (int)kids[0], (int)kids[1]);
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 1;
        if (strcmp(line, "end\n") == 0) break;
        for (int i = 0; i < 2; i++) (void)!write(asked[i][1], "x", 1);
    }
    for (int i = 0; i < 2; i++) close(asked[i][1]);
    while (wait(NULL) > 0) {
    }
    return 7;
}
