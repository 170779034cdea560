/* starting [N [US]]: its constructor calls early(0), main early(1) to early(N), US
 * microseconds apart. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) int early(int n) {
    __asm__ volatile("" ::: "memory");
    return n + 1;
}

__attribute__((constructor)) static void before_main(void) { early(0); }

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1, us = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 1; i <= n; i++) {
        early(i);
        if (us)
            usleep(us);
    }
    return 0;
}
