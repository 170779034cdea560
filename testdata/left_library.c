/* left_library LIB: prints "ready"; then each line makes it do the next of these, and say so:
 * load LIB ("loaded"), call its part_work ("called"), unload it ("unloaded"). It ends with
 * its input. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    char line[64];
    void *lib = NULL;
    long (*work)(long) = NULL;
    (void)argc;
    puts("ready");
    fflush(stdout);
    for (int step = 0; fgets(line, sizeof line, stdin); step++) {
        switch (step % 3) {
        case 0:
            lib = dlopen(argv[1], RTLD_NOW);
            work = lib ? (long (*)(long))dlsym(lib, "part_work") : NULL;
            puts(work ? "loaded" : dlerror());
            break;
        case 1:
            work(step);
            puts("called");
            break;
        default:
            puts(dlclose(lib) == 0 ? "unloaded" : dlerror());
        }
        fflush(stdout);
    }
    return 7;
}
