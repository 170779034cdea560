// Loads copies of a library, one at each line: library_copies LIBRARY COPY.
// It prints "ready", at a line what it has done, the sum of what the library's
// part_work gave in all copies that are loaded, 10 calls in each, and ends with
// status 7 at the end of its input. Lines:
//
//	open      the library
//	apart     the library once more, in a namespace of its own (dlmopen)
//	other     COPY, another file
//	close     unloads what came last
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    void *loaded[16];
    int n = 0;
    char line[64];
    if (argc < 3) return 2;
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        void *h = 0;
        if (!strcmp(line, "open\n")) h = dlopen(argv[1], RTLD_NOW);
        else if (!strcmp(line, "apart\n")) h = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
        else if (!strcmp(line, "other\n")) h = dlopen(argv[2], RTLD_NOW);
        else if (!strcmp(line, "close\n")) dlclose(loaded[--n]);
        else return 3;
        if (h) loaded[n++] = h;
        long sum = 0;
        for (int i = 0; i < n; i++) {
            long (*work)(long) = (long (*)(long))dlsym(loaded[i], "part_work");
            for (long k = 0; k < 10; k++) sum += work(k);
        }
        printf("%d %ld\n", n, sum); fflush(stdout);
    }
    return 7;
}
