// Makes tasks in every way, which call tick 1000 times each. Prints "ready"; for each other line, whose first letter says how, it does
// that and prints "done". It ends with status 7 with an empty line.
//   t: the first thread calls; b: a new thread; s: a task of clone with a control block of its own that looks as if its rseq area
//   were registered; v: a child of vfork; w: one that shares the memory, made by clone; p: the first thread, when a program was
//   spawned; f: a forked child; x: as w, by the system call's own number; l: as w, whose maker goes on.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern const ptrdiff_t __rseq_offset;
extern const unsigned int __rseq_size;

__attribute__((noipa, aligned(64))) void tick(long a) { asm volatile("leaq 0x1234(%%rdi), %%rax" ::: "rax"); }

static void many(void) {
    for (long i = 0; i < 1000; i++) tick(i);
}

static void *thread(void *arg) {
    many();
    return 0;
}

static volatile int gone;

static int task(void *arg) {
    many();
    gone = 1;
    return 0;
}

static void ends(void) {
    many();
    _exit(0);
}

static char stack[1 << 16] __attribute__((aligned(16)));
static char block[1 << 14] __attribute__((aligned(64)));

static void reap(pid_t pid) {
    if (pid <= 0) exit(90);
    waitpid(pid, 0, __WALL);
}

int main(void) {
    char line[16];
    if (__rseq_size == 0) return 77;
    puts("ready"), fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        pid_t pid;
        pthread_t p;
        char *top = stack + sizeof stack;
        switch (line[0]) {
        case '\n':
            return 7;
        case 't':
            many();
            break;
        case 'b':
            if (pthread_create(&p, 0, thread, 0)) return 91;
            pthread_join(p, 0);
            break;
        case 's': {
            char *own = block + sizeof block / 2;
            size_t n = __rseq_offset + 32;
            memcpy(own, __builtin_thread_pointer(), n);
            memcpy(own, &own, sizeof own), memcpy(own + 16, &own, sizeof own);
            gone = 0;
            if (clone(task, top, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS, 0, 0, own, 0) <= 0) return 92;
            while (!gone) usleep(1000);
            break;
        }
        case 'v':
            if ((pid = vfork()) == 0) ends();
            reap(pid);
            break;
        case 'w':
            reap(clone(task, top, CLONE_VM | CLONE_VFORK | SIGCHLD, 0));
            break;
        case 'l':
            reap(clone(task, top, CLONE_VM | SIGCHLD, 0));
            break;
        case 'p': {
            char *args[] = {"true", 0};
            if (posix_spawnp(&pid, args[0], 0, 0, args, environ)) return 93;
            reap(pid);
            many();
            break;
        }
        case 'f':
            if ((pid = fork()) == 0) ends();
            reap(pid);
            break;
        case 'x': {
            void (*to)(void) = ends; // where the child's return address is
            memcpy(top - 64, &to, sizeof to);
            reap(syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, top - 64, 0, 0, 0));
            break;
        }
        }
        puts("done"), fflush(stdout);
    }
    return 97;
}
