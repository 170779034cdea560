/* cli_selftest [N [LIBRARY]]: what the kernel's selftests of kprobe events probe,
 * in a process. Calls clone_it, which stands for kernel_clone, make_dir and a
 * function with a dot in its name N times; maps the library, calls module_work in
 * it and lets go of it, twice. */
#include <dlfcn.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

char banner[] = "Linux version 6.1 (builder@host) (gcc 12)";
unsigned long number = 0x8877665544332211;

NOINLINE long make_dir(const char *name, long mode) {
    __asm__ volatile("" : : "r"(name) : "memory");
    return mode + 1;
}

NOINLINE long clone_it(long flags) {
    __asm__ volatile("nop; nop; nop; nop; nop" : : : "memory");
    return make_dir("test", flags) * 2;
}

/* Another source file, sym_other.c, has one of the same name. */
static NOINLINE long twin(long n) {
    __asm__ volatile("" : : : "memory");
    return n + 2;
}

long dotted(long n) __asm__("dotted.isra.0");
NOINLINE long dotted(long n) {
    __asm__ volatile("" : : : "memory");
    return n + 3;
}

static void module(const char *path) {
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib)
        exit(3);
    long (*work)(long) = (long (*)(long))dlsym(lib, "module_work");
    if (!work || work(4) != 12)
        exit(4);
    dlclose(lib);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum += clone_it(i) + dotted(i) + twin(i);
    if (argc > 2) {
        module(argv[2]);
        module(argv[2]);
    }
    return sum < 0;
}
