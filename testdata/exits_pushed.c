// Functions that return elsewhere: to an address that they have put on the stack. Two are retpolines. One takes its return
// address off the stack, and puts it back.
// The argument is how often each is called.

#include <stdio.h>
#include <stdlib.h>

#define FUNCTION(name, ...) \
	asm(".globl " #name "\n.type " #name ", @function\n" #name ":\n" __VA_ARGS__ "\n.size " #name ", .-" #name "\n"); \
	long name(long)

__attribute__((noipa)) long up(long x) { return 3 * x + 1; }

FUNCTION(by_push, "lea up(%rip), %rax\n push %rax\n ret");
FUNCTION(by_memory, "push target(%rip)\n ret");
FUNCTION(by_store, "lea up(%rip), %rax\n sub $8, %rsp\n mov %rax, (%rsp)\n ret");
FUNCTION(by_retpoline, "lea up(%rip), %r11\n call 1f\n 2: pause\n jmp 2b\n 1: mov %r11, (%rsp)\n ret");
FUNCTION(inline_retpoline, "sub $8, %rsp\n lea up(%rip), %r11\n jmp 3f\n 4: call 1f\n 2: pause\n jmp 2b\n 1: mov %r11, (%rsp)\n ret\n"
	" 3: call 4b\n add $8, %rsp\n ret");
FUNCTION(thunk_r11, "call 1f\n 2: pause\n jmp 2b\n 1: mov %r11, (%rsp)\n ret");
FUNCTION(jumps_to_thunk, "test %rdi, %rdi\n lea up(%rip), %r11\n jmp thunk_r11");
FUNCTION(puts_back, "pop %rcx\n lea 1(%rdi, %rdi, 2), %rax\n push %rcx\n ret");
FUNCTION(balanced, "push %rbx\n mov %rdi, %rbx\n lea 1(%rbx, %rbx, 2), %rax\n pop %rbx\n ret");

long (*target)(long) = up;

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2)
		return 2;
	puts("ready");
	getchar();
	long sum = 0;
	for (long n = atol(argv[1]), i = 0; i < n; i++)
		sum += by_push(i) + by_memory(i) + by_store(i) + by_retpoline(i) + inline_retpoline(i) + jumps_to_thunk(i) +
		       puts_back(i) + balanced(i);
	printf("done %ld\n", sum);
	getchar();
	return 7;
}
