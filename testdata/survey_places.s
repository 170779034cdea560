# Places that can be probed and places that can't be, at addresses that the test
# of probe/survey names by symbol and offset.
	.text
	.globl _start
	.type _start, @function
_start:
	nop                     # 0
	movl $0x01020304, %eax  # 1
	syscall                 # 6
	jmp other + 1           # 8: into the middle of another
	.byte 0x06              # 10: no instruction of 64-bit mode
	ret                     # 11
	.size _start, . - _start

	.type other, @function
other:
	nop
	nop
	ret
	.size other, . - other
	.fill 5, 1, 0xcc        # padding

	.type trampoline, @function
trampoline:                     # what returns from a signal's handler
	mov $15, %rax
	syscall
	.size trampoline, . - trampoline
	.fill 80, 1, 0x90

	.type __restore_rt, @function
__restore_rt:                   # the same by its name
	nop
	.size __restore_rt, . - __restore_rt

	.type bad, @function
bad:
	.byte 0x06, 0x06
	.size bad, . - bad

	.globl unsized
unsized:
	nop
	nop
	.globl last
	.type last, @function
last:                           # the file's last bytes
	nop
	ret
	.size last, . - last
