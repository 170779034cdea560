// Registers, memory and stack that are the same at every round. Usage:
// probe_kernel. It prints "ready"; for each line of input it calls target ROUNDS
// times and prints "done SUM"; at the end of input it ends with status 7.
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#define ROUNDS 4
struct rec {
    struct rec *next;   // 0
    char *text;         // 8
    char *texts[4];     // 16
    int8_t small;       // 48
    uint8_t bytes[15];  // 49
    int16_t half;       // 64
    int32_t word;       // 68
    int64_t wide;       // 72
    uint32_t words[8];  // 80
    uint64_t wides[4];  // 112
    char *bad;          // 144
    char inline_text[24]; // 152
    struct rec *self;   // 176
};
char empty[] = "", shout[] = "Hello, kernel", tabs[] = "a b \"quoted\" \\ c", latin[] = "caf\xc3\xa9", odd[] = "x y\xff";
struct rec recs[ROUNDS];
const uint64_t file_data[4] = {0x1122334455667788, 0x99aabbccddeeff00, 7, 0x8000000000000000};
const char file_text[] = "text in the file";
uint64_t in[16]; // rax rcx rdx rbx - rbp rsi rdi r8..r15
uint64_t call_target(void);
__asm__(".text\n"
        ".globl target\n.type target,@function\n"
        "target: leaq 1(%rdi,%rsi),%rax\n"
        ".globl target_mid\n target_mid: movq %rax,%r11\n imulq $3,%rax,%rax\n addq $5,%rax\n ret\n.size target,.-target\n"
        ".globl call_target\n.type call_target,@function\n"
        "call_target: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "leaq in(%rip),%rax\n"
        "movq $7,%rcx\n1: pushq (%rax,%rcx,8)\n decq %rcx\n jns 1b\n" // 8 words on the stack
        "movq 8(%rax),%rcx\n movq 16(%rax),%rdx\n movq 24(%rax),%rbx\n movq 40(%rax),%rbp\n movq 48(%rax),%rsi\n movq 56(%rax),%rdi\n"
        "movq 64(%rax),%r8\n movq 72(%rax),%r9\n movq 80(%rax),%r10\n movq 88(%rax),%r11\n movq 96(%rax),%r12\n movq 104(%rax),%r13\n"
        "movq 112(%rax),%r14\n movq 120(%rax),%r15\n movq (%rax),%rax\n"
        "cmpq $-1,%rax\n clc\n call target\n.globl after_target\nafter_target: addq $64,%rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n.size call_target,.-call_target\n"
        ".section .note.GNU-stack,\"\",@progbits\n.text\n");

static uint64_t seed;
static uint64_t next(void) { seed = seed * 6364136223846793005u + 1442695040888963407u; return seed ^ seed >> 29; }
static void fill(int i) {
    struct rec *r = &recs[i];
    char *texts[] = {empty, shout, tabs, latin, odd};
    memset(r, 0, sizeof *r);
    r->next = &recs[(i + 1) % ROUNDS];
    r->self = r;
    r->text = texts[(i + 1) % 5];
    for (int k = 0; k < 4; k++) r->texts[k] = texts[(i + k) % 5];
    r->small = (int8_t)next(); r->half = (int16_t)next(); r->word = (int32_t)next(); r->wide = (int64_t)next();
    for (int k = 0; k < 15; k++) r->bytes[k] = (uint8_t)next();
    for (int k = 0; k < 8; k++) r->words[k] = (uint32_t)next();
    for (int k = 0; k < 4; k++) r->wides[k] = next();
    r->bad = (char *)(uintptr_t)(i * 8);
    strcpy(r->inline_text, i & 1 ? "odd inline text" : "even");
}
int main(void) {
    char line[64];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        uint64_t sum = 0;
        seed = 42;
        for (int i = 0; i < ROUNDS; i++) fill(i);
        for (int i = 0; i < ROUNDS; i++) {
            for (int k = 0; k < 16; k++) in[k] = next();
            in[7] = (uint64_t)&recs[i];            // di
            in[6] = next() & 0xffff;               // si
            in[8] = (uint64_t)recs[i].text;        // r8
            in[9] = (uint64_t)recs[i].texts;       // r9
            in[10] = (uint64_t)recs[i].inline_text; // r10
            sum += call_target() - 3 * (uint64_t)&recs[i];
        }
        printf("done %llu\n", (unsigned long long)sum); fflush(stdout);
    }
    return 7;
}
