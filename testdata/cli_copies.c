/* cli_copies LIBRARY FILE: loads cli_module twice, the second time into a
 * namespace of its own (dlmopen), writes its process id to FILE, and calls
 * module_work of both for ever: with N and N + 1000, every 5 ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    void *a = argc > 2 ? dlmopen(LM_ID_BASE, argv[1], RTLD_NOW) : 0;
    void *b = a ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : 0;
    if (!b)
        return 3;
    long (*first)(long) = (long (*)(long))dlsym(a, "module_work");
    long (*second)(long) = (long (*)(long))dlsym(b, "module_work");
    FILE *f = fopen(argv[2], "w");
    if (!f || !first || !second || first == second)
        return 4;
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
    for (long n = 0;; n = (n + 1) % 1000) {
        if (first(n) != 3 * n || second(n + 1000) != 3 * (n + 1000))
            return 5;
        usleep(5000);
    }
}
