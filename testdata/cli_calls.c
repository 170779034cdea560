/* cli_calls N [FILE]: calls top N times, in two threads one after the other. Every
 * top calls leaf and rec(3), which calls itself; every third one waits 20 ms in
 * pause_here; every fourth leaves fails by longjmp. With FILE it then writes its
 * process id there and waits in hangs for ever. nothing
 * returns nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLED __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

static __thread jmp_buf out;

CALLED int leaf(int n) {
    KEEP;
    return n + 1;
}
CALLED int rec(int n) {
    int r = n == 0 ? leaf(0) : rec(n - 1) + 1;
    KEEP;
    return r;
}
CALLED int pause_here(int us) {
    usleep(us);
    KEEP;
    return us;
}
CALLED int fails(int n) {
    if (leaf(n))
        longjmp(out, 1);
    KEEP;
    return n;
}
CALLED int top(int n) {
    int r = leaf(n) + rec(3);
    if (n % 3 == 2)
        r += pause_here(200000);
    if (n % 4 == 3 && !setjmp(out))
        r += fails(n);
    KEEP;
    return r;
}
CALLED void nothing(void) { KEEP; }
CALLED int hangs(void) {
    for (;;)
        pause();
    return 0;
}

static void *run(void *count) {
    for (int i = 0; i < *(int *)count; i++)
        top(i);
    return NULL;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 3;
    pthread_t t;
    run(&n);
    if (pthread_create(&t, NULL, run, &n) || pthread_join(t, NULL))
        return 1;
    nothing();
    if (argc > 2) {
        FILE *f = fopen(argv[2], "w");
        if (!f)
            return 1;
        fprintf(f, "%d\n", (int)getpid());
        fclose(f);
        hangs();
    }
    return 0;
}
