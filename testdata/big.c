// A program of MANY functions from another object file (internal/fixture, many.go), which start every SLOT bytes. For each line it
// calls each once, and prints "done SUM" then. With the line "q" it ends with status 7.
#include <stdio.h>

extern char f_0[];

int main(void) {
    char line[8];
    puts("ready"), fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        unsigned long sum = 0;
        for (unsigned i = 0; i < MANY; i++) sum += ((unsigned (*)(unsigned))(void *)(f_0 + (long)i * SLOT))(i);
        printf("done %lu\n", sum), fflush(stdout);
    }
    return 7;
}
