// Functions lab_one and lab_two, and a label lab_inside in the midst of an instruction of
// the first. At a line the program calls each of them a hundred times, at a second one it
// ends with status 7.
#include <stdio.h>

long lab_one(void), lab_two(void);
__asm__(".text\n.globl lab_one\n.type lab_one,@function\nlab_one: .byte 0x48,0xb8\nlab_inside: .byte 1,0,0,0,0,0,0,0\nret\n.size lab_one,.-lab_one\n"
        ".globl lab_two\n.type lab_two,@function\nlab_two: movl $2,%eax\nnop\nret\n.size lab_two,.-lab_two\n");

int main(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    long sum = 0;
    for (int i = 0; i < 100; i++) sum += lab_one() + lab_two();
    printf("done %ld\n", sum);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) ? 7 : 4;
}
