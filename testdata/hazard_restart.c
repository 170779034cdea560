/* hazard_restart: sets seccomp rules that allow little, restart_syscall(2) not, and kill
 * for anything else. Prints "ready", and has two threads call work(), and sleep in between,
 * until a line comes. Ends with 7. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAY(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

__attribute__((noinline)) int work(int n) {
    __asm__ volatile("nopl 16(%%rax,%%rax)" : "+r"(n));
    return n * 3;
}

static volatile int running;

static void *run(void *p) {
    __atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST);
    for (int i = 0;; i++) {
        work(i);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 3000000}, NULL);
    }
    return p;
}

int main(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        MAY(read), MAY(write), MAY(exit_group), MAY(clock_nanosleep), MAY(rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog prog = {sizeof rules / sizeof *rules, rules};
    pthread_t t[2];
    char line[16];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, run, NULL);
    while (running < 2)
        usleep(1000);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) != 0)
        return 3;
    write(1, "ready\n", 6);
    read(0, line, sizeof line);
    _exit(7);
}
