/* jit_map: makes functions in memory of no file, bare that calls outer that calls
 * inner that calls leaf, and writes their names to /tmp/perf-PID.map as a compiler
 * would. For each line that it reads it calls bare once, and says so; from the third
 * call on inner and outer have one name. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) void leaf(void) {
    __asm__ volatile("" ::: "memory");
}

static void emit(unsigned char *at, void (*to)(void)) {
    static const unsigned char code[] = {
        0x55,                                /* push %rbp */
        0x48, 0x89, 0xe5,                    /* mov %rsp,%rbp */
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,  /* movabs $to,%rax */
        0xff, 0xd0,                          /* call *%rax */
        0x5d,                                /* pop %rbp */
        0xc3,                                /* ret */
    };
    memcpy(at, code, sizeof code);
    memcpy(at + 6, &to, sizeof to);
}

/* A function without a frame pointer, as CPython's trampolines. */
static void emit_bare(unsigned char *at, void (*to)(void)) {
    static const unsigned char code[] = {
        0x48, 0x83, 0xec, 0x08,              /* sub $8,%rsp */
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,  /* movabs $to,%rax */
        0xff, 0xd0,                          /* call *%rax */
        0x48, 0x83, 0xc4, 0x08,              /* add $8,%rsp */
        0xc3,                                /* ret */
    };
    memcpy(at, code, sizeof code);
    memcpy(at + 6, &to, sizeof to);
}

int main(void) {
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char name[64], line[64];
    FILE *map;
    if (code == MAP_FAILED)
        return 1;
    emit(code, leaf);
    emit(code + 64, (void (*)(void))code);
    emit_bare(code + 128, (void (*)(void))(code + 64));
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0)
        return 1;
    snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
    map = fopen(name, "w");
    if (!map)
        return 1;
    fprintf(map, "%lx 40 jit inner\n%lx 40 jit outer\n%lx 40 jit bare\n", (long)code, (long)code + 64, (long)code + 128);
    fflush(map);
    puts("ready");
    fflush(stdout);
    for (int n = 1; fgets(line, sizeof line, stdin); n++) {
        if (n == 3) {
            fprintf(map, "%lx 80 jit <both>\n", (long)code);
            fflush(map);
        }
        ((void (*)(void))(code + 128))();
        puts("called");
        fflush(stdout);
    }
    fclose(map);
    unlink(name);
    return 0;
}
