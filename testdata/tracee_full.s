# A static program whose text fills its last page. It prints its pid, and waits for the
# end of its input.
	.globl _start
	.text
_start:
	mov $39, %eax		# getpid
	syscall
	lea number(%rip), %rdi
	mov $10, %ecx
	lea 15(%rdi), %rsi
	movb $10, (%rsi)
1:	xor %edx, %edx
	div %rcx
	add $'0', %dl
	dec %rsi
	mov %dl, (%rsi)
	test %eax, %eax
	jnz 1b
	lea number+16(%rip), %rdx
	sub %rsi, %rdx
	mov $1, %edi
	mov $1, %eax		# write
	syscall
2:	xor %eax, %eax		# read
	xor %edi, %edi
	lea number(%rip), %rsi
	mov $1, %edx
	syscall
	test %rax, %rax
	jg 2b
	xor %edi, %edi
	mov $60, %eax		# exit
	syscall
	.balign 4096, 0xcc
	.bss
number:	.skip 16
