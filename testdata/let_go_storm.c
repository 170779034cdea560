/* let_go_storm DEPTH SEED: a tree of processes, each of which makes others in all the ways that
 * programs do, executes itself, and tries what isn't there; in the end it prints "DONE N" with
 * the number of processes that ran to their end, as counted by the bytes in a pipe. Depth 0 only
 * calls work. Any call that fails ends it with a status that says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *self;
static int fd; /* of the pipe */

__attribute__((noinline)) int work(int x) {
    __asm__ volatile("" : "+r"(x) : : "memory");
    return x + 1;
}

static void die(int code, const char *what) {
    dprintf(2, "let_go_storm: %s: %s\n", what, strerror(errno));
    _exit(code);
}

static unsigned next(unsigned *seed) { return *seed = *seed * 1103515245u + 12345u, *seed >> 16; }

static void node(int depth, unsigned seed);

/* again executes this program for a node. */
static char **again(int depth, unsigned seed) {
    static __thread char d[16], s[16], f[16];
    static __thread char *argv[5];
    snprintf(d, sizeof d, "%d", depth);
    snprintf(s, sizeof s, "%u", seed);
    snprintf(f, sizeof f, "%d", fd);
    argv[0] = (char *)self, argv[1] = d, argv[2] = s, argv[3] = f, argv[4] = NULL;
    return argv;
}

struct one { int depth; unsigned seed; };

static void *executes(void *p) {
    struct one *x = p;
    execv(self, again(x->depth, x->seed));
    die(20, "execv by a thread");
    return NULL;
}

static void awaits(pid_t kid) {
    int status;
    while (waitpid(kid, &status, 0) < 0)
        if (errno != EINTR)
            die(21, "waitpid");
    if (status != 0) {
        dprintf(2, "let_go_storm: child %d ended by %#x\n", kid, status);
        _exit(22);
    }
}

/* child makes one child, in one of the ways. */
static pid_t child(int depth, unsigned *seed) {
    unsigned way = next(seed) % 8, s = next(seed);
    pid_t kid = -1;
    char **argv = again(depth, s);
    switch (way) {
    case 0: case 1:
        if ((kid = fork()) == 0) {
            node(depth, s);
            _exit(0);
        }
        break;
    case 2:
        if ((kid = fork()) == 0) {
            execv(self, argv);
            die(23, "execv");
        }
        break;
    case 3:
        if ((kid = vfork()) == 0) {
            execv("/nonexistent/program", argv);
            execv(self, argv);
            _exit(24);
        }
        break;
    case 4: case 5:
        if ((errno = posix_spawn(&kid, self, NULL, NULL, argv, environ)) != 0)
            die(25, "posix_spawn");
        break;
    case 6: /* a child that executes twice */
        if ((kid = fork()) == 0) {
            char line[200];
            snprintf(line, sizeof line, "exec %s %s %s %s", argv[0], argv[1], argv[2], argv[3]);
            execl("/bin/sh", "sh", "-c", line, NULL);
            die(26, "execl");
        }
        break;
    case 7: /* a thread of the child executes */
        if ((kid = fork()) == 0) {
            struct one x = {depth, s};
            pthread_t id;
            if (pthread_create(&id, NULL, executes, &x) != 0)
                die(27, "pthread_create");
            pthread_join(id, NULL);
            die(28, "pthread_join returned");
        }
        break;
    }
    if (kid < 0)
        die(29, "no child");
    return kid;
}

static void node(int depth, unsigned seed) {
    work(depth);
    if (depth > 0) {
        pid_t kids[3];
        int n = 2 + (int)(next(&seed) % 2);
        for (int i = 0; i < n; i++)
            kids[i] = child(depth - 1, &seed);
        pid_t missing;
        char *argv[] = {"nothing", NULL};
        if (posix_spawn(&missing, "/nonexistent/program", NULL, NULL, argv, environ) == 0)
            awaits(missing);
        for (int i = 0; i < n; i++)
            awaits(kids[i]);
    }
    work(depth);
    if (write(fd, "x", 1) != 1)
        die(30, "write");
}

int main(int argc, char **argv) {
    int depth = atoi(argv[1]);
    unsigned seed = (unsigned)strtoul(argv[2], NULL, 10);
    self = argv[0];
    if (argc > 3) {
        fd = atoi(argv[3]);
        node(depth, seed);
        return 0;
    }
    int ends[2];
    if (pipe(ends) != 0 || fcntl(ends[1], F_SETPIPE_SZ, 1 << 16) < 0)
        die(31, "pipe");
    fd = ends[1];
    node(depth, seed);
    close(fd);
    char b[4096];
    long n = 0;
    for (ssize_t k; (k = read(ends[0], b, sizeof b)) > 0;)
        n += k;
    printf("DONE %ld\n", n);
    return 7;
}
