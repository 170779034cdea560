// Code that starts where no return address is on the stack: a part that is
// jumped to, a trampoline that finds more there, a label, and the program's start.
// They check what lies there instead.
__asm__(
	".text\n"
	".globl whole\n.type whole, @function\n"
	"whole:\n"
	"	.cfi_startproc\n"
	"	push %rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_rel_offset rbx, 0\n"
	"	push $77\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	jmp whole_rest\n"
	"	.cfi_endproc\n"
	".size whole, .-whole\n"
	".globl whole_rest\n.type whole_rest, @function\n"
	"whole_rest:\n"
	"	.cfi_startproc\n"
	"	.cfi_def_cfa_offset 24\n"
	"	.cfi_offset rbx, -16\n"
	"	pop %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	pop %rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	.cfi_restore rbx\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size whole_rest, .-whole_rest\n"
	".globl whole_way\n.type whole_way, @function\n"
	"whole_way:\n"
	"	.cfi_startproc\n"
	"	push $3\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	push $4\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	jmp whole_resolve\n"
	"	.cfi_endproc\n"
	".size whole_way, .-whole_way\n"
	".globl whole_resolve\n.type whole_resolve, @function\n"
	"whole_resolve:\n"
	"	.cfi_startproc\n"
	"	.cfi_adjust_cfa_offset 16\n"
	"	pop %rax\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	add (%rsp), %rax\n"
	"	add $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size whole_resolve, .-whole_resolve\n"
	".globl whole_bare\n.type whole_bare, @function\n"
	"whole_bare:\n"
	"	mov $5, %eax\n"
	"	ret\n"
	".size whole_bare, .-whole_bare\n"
	".globl whole_label\n"
	"whole_label:\n"
	"	pop %rax\n"
	"	ret\n"
	".globl whole_leap\n.type whole_leap, @function\n"
	"whole_leap:\n"
	"	push $9\n"
	"	jmp whole_label\n"
	".size whole_leap, .-whole_leap\n"
	".section .note.GNU-stack,\"\",@progbits\n"
	".text\n");

long whole(void), whole_way(void), whole_bare(void), whole_leap(void);

int main(int argc, char **argv)
{
	long wrong = 0;

	if (argc != 1 || !argv[0] || argv[1])
		return 2;
	for (int i = 0; i < 1000; i++)
		wrong += whole() != 77 || whole_way() != 7 || whole_bare() != 5 || whole_leap() != 9;
	return wrong ? 1 : 42;
}
