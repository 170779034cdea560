// A program of 70,000 functions, f_0, f_1, …, which it calls each once for each line, and prints "done SUM" then. With the line
// "q" it ends with status 7.
#include <stdio.h>

#define MANY 70000

__asm__(".altmacro\n"
        ".macro one n\n .globl f_\\n\n .type f_\\n, @function\n f_\\n: leaq 1(%rdi), %rax\n nopl 0(%rax)\n ret\n .size f_\\n, . - f_\\n\n .balign 16\n"
        " .pushsection .data.rel.ro, \"aw\"\n .quad f_\\n\n .popsection\n .endm\n"
        ".pushsection .data.rel.ro, \"aw\"\n .balign 8\n list:\n .popsection\n"
        ".text\n .balign 16\n .set i, 0\n .rept 70000\n one %i\n .set i, i + 1\n .endr\n");

extern long (*const list[MANY])(long);

int main(void) {
    char line[8];
    puts("ready"), fflush(stdout);
    while (fgets(line, sizeof line, stdin) && line[0] != 'q') {
        long sum = 0;
        for (long i = 0; i < MANY; i++) sum += list[i](i);
        printf("done %ld\n", sum), fflush(stdout);
    }
    return 7;
}
