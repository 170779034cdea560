// Processes that come, go and change. Usage: hazard_process MODE COUNT [FILE].
// It prints "ready", waits for a line, runs MODE, prints "done SUM" and ends
// with status 7 after a further line.
//   forks   four threads fork at once; each child works and says by its status
//           whether the result was right
//   execs   the program executes itself COUNT times, working each time
//   loads   FILE is loaded, called and unloaded, COUNT times
//   escape  a timer's handler leaves every second time by siglongjmp
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
NOINLINE long work(long a, const char *s) { __asm__ volatile(""); return a * 3 + s[0]; }
static long count, bad;
static void *forks(void *arg) {
    long s = 0;
    for (long i = 0; i < count; i++) {
        pid_t p = fork();
        if (p == 0) {
            long r = 0;
            for (int k = 0; k < 100; k++) r += work(k, "x");
            _exit(r == 3 * 4950 + 100 * 'x' ? 11 : 12);
        }
        int st;
        if (p < 0 || waitpid(p, &st, 0) != p || !WIFEXITED(st) || WEXITSTATUS(st) != 11) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
        s += work(i, "y");
    }
    *(long *)arg = s;
    return 0;
}
static sigjmp_buf back;
static volatile int turn;
static void on_alarm(int sig) { (void)sig; work(1, "h"); if (turn++ & 1) siglongjmp(back, 1); }
static volatile long done;
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    count = atol(argv[2]);
    char line[64], n[32];
    long s = 0;
    setvbuf(stdin, 0, _IONBF, 0);
    if (!getenv("AGAIN")) {
        puts("ready"); fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 3;
    }
    if (!strcmp(argv[1], "forks")) {
        pthread_t t[4]; long r[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, forks, &r[i]);
        for (int i = 0; i < 4; i++) { pthread_join(t[i], 0); s += r[i]; }
    } else if (!strcmp(argv[1], "execs")) {
        for (long i = 0; i < 50; i++) s += work(i, "e");
        if (count > 1) {
            snprintf(n, sizeof n, "%ld", count - 1);
            setenv("AGAIN", "1", 1);
            execl(argv[0], argv[0], "execs", n, (char *)0);
            return 5;
        }
    } else if (!strcmp(argv[1], "loads")) {
        for (long i = 0; i < count; i++) {
            void *h = dlopen(argv[3], RTLD_NOW);
            long (*f)(long) = h ? (long (*)(long))dlsym(h, "in_library") : 0;
            if (!f) { bad++; continue; }
            for (long k = 0; k < 10; k++) { s += f(k) + work(k, "l"); usleep(300); }
            dlclose(h);
        }
    } else if (!strcmp(argv[1], "escape")) {
        struct itimerval every = {{0, 1000}, {0, 1000}};
        signal(SIGALRM, on_alarm);
        sigsetjmp(back, 1);
        setitimer(ITIMER_REAL, &every, 0);
        for (; done < count * 1000; done++) if (work(done, "z") != done * 3 + 'z') bad++;
        memset(&every, 0, sizeof every);
        setitimer(ITIMER_REAL, &every, 0);
    }
    printf("done %ld bad %ld\n", s, bad); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
