# Instruction forms that are relocated and run: each line is one instruction.
# The linker puts data where insn_exec.c has memory.
	.text
	.globl _start
_start:
	# registers only
	.irp op, add, or, adc, sbb, and, sub, xor, cmp, test
	\op %rax, %rbx
	\op %r8d, %r15d
	\op %cl, %dh
	\op $5, %rsi
	\op $0x12345678, %r9
	\op $0x1234, %dx
	.endr
	.irp op, inc, dec, not, neg, mul, imul, div, idiv
	\op %rcx
	\op %r10b
	.endr
	.irp op, shl, shr, sar, rol, ror, rcl, rcr
	\op $3, %rax
	\op %cl, %edx
	\op %r11w
	.endr
	mov %rsp, %rbp
	mov %ah, %bl
	movabs $0x1122334455667788, %rdi
	xchg %rax, %r8
	bswap %r9
	cmovg %rax, %rbx
	setle %dil
	cltq
	cqto
	cmc
	lahf
	sahf
	bsf %rax, %rbx
	bt $5, %rax
	shld $3, %rax, %rbx
	imul $7, %rax, %rbx
	movzbl %ch, %eax
	movslq %eax, %r12
	popcnt %rax, %rbx
	endbr64
	nop
	nopw 0(%rax,%rax,1)
	nopl data(%rip)
	# the stack
	push %rax
	push %rsp
	push $1
	push $0x12345678
	pushw $7
	pushf
	pop %r12
	pop %rsp
	popf
	leave
	enter $16, $0
	enter $16, $1
	ret
	ret $24
	repz ret
	sub $40, %rsp
	lea -8(%rsp), %rsp
	# memory by register
	mov 8(%rbx), %rax
	mov %rax, -8(%rbp)
	mov (%rax), %dh
	lock xaddq %rax, (%rbx)
	lock cmpxchg %rcx, (%rdx)
	lock incl 64(%rsi)
	mov %fs:0x0, %rax
	movsb
	rep movsb
	repz cmpsb
	repnz scasb
	rep stosq
	lodsl
	xlat
	mov 0x10000200, %rax
	addr32 mov (%eax), %ecx
	# memory by rip
	.irp op, mov, add, or, adc, sbb, and, sub, xor, cmp
	\op data(%rip), %rax
	\op %rbx, data+8(%rip)
	\op %sil, data+3(%rip)
	\op data+5(%rip), %dh
	\op data+6(%rip), %r14w
	\op %r11d, data+16(%rip)
	\op %bh, data+16(%rip)
	.endr
	.irp op, add, adc, cmp, sub, mov, test
	\op\()q $0x12345678, data+24(%rip)
	\op\()b $0x12, data+25(%rip)
	\op\()w $0x1234, data+26(%rip)
	.endr
	.irp op, inc, dec, not, neg, mul, imul, div, idiv
	\op\()q data+32(%rip)
	\op\()b data+33(%rip)
	.endr
	.irp op, shl, sar, rcl, ror
	\op\()q $3, data(%rip)
	\op\()l %cl, data(%rip)
	\op\()w data(%rip)
	.endr
	.irp reg, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r13, r14, r15
	mov data(%rip), %\reg
	mov %\reg, data+48(%rip)
	lea data(%rip), %\reg
	xchg %\reg, data+56(%rip)
	cmovne data(%rip), %\reg
	imul $9, data(%rip), %\reg
	.endr
	lea data(%rip), %eax
	lea data(%rip), %r9d
	lea data(%rip), %cx
	mov data(%rip), %eax
	push data+8(%rip)
	pop data+16(%rip)
	movabs $7, %rax
	movsbl data(%rip), %esi
	movzwq data+1(%rip), %rdi
	movslq data(%rip), %rbx
	sete data+64(%rip)
	bt %rax, %rbx
	btsq $5, data(%rip)
	shld $3, %rsi, data(%rip)
	shrd %cl, %rdi, data(%rip)
	bsr data(%rip), %rbx
	tzcnt data(%rip), %rbx
	popcnt data(%rip), %rsi
	lock cmpxchg %rsi, data(%rip)
	lock cmpxchg %rbx, data(%rip)
	lock cmpxchg8b data(%rip)
	lock cmpxchg16b data(%rip)
	lock xadd %rdi, data(%rip)
	lock btsq $3, data(%rip)
	movbe data(%rip), %rsi
	crc32q data(%rip), %rbx
	movnti %rsi, data(%rip)
	mov data(%eip), %rax
	lea data(%eip), %rax
	add %rsi, data(%eip)
	prefetcht0 data(%rip)
	clflush data(%rip)
	# vectors
	movups data(%rip), %xmm0
	movups %xmm1, data(%rip)
	movaps data(%rip), %xmm2
	addps data(%rip), %xmm3
	pshufd $0x1b, data(%rip), %xmm4
	pinsrw $3, data(%rip), %xmm5
	pextrd $1, %xmm6, data(%rip)
	pcmpistri $0x0c, data(%rip), %xmm1
	pcmpestri $0x0c, data(%rip), %xmm1
	cvtsi2sdq data(%rip), %xmm0
	cvttsd2si data(%rip), %rsi
	movd data(%rip), %xmm7
	movq %xmm7, data(%rip)
	ucomisd data(%rip), %xmm0
	aesenc data(%rip), %xmm1
	pclmulqdq $1, data(%rip), %xmm1
	movq data(%rip), %mm0
	ldmxcsr data(%rip)
	stmxcsr data(%rip)
	vmovups data(%rip), %ymm0
	vmovups %ymm9, data(%rip)
	vpaddd data(%rip), %xmm1, %xmm2
	vpaddd data(%rip), %xmm9, %xmm10
	vpshufb data(%rip), %xmm11, %xmm2
	vpblendvb %xmm1, data(%rip), %xmm2, %xmm3
	vinserti128 $1, data(%rip), %ymm1, %ymm2
	vfmadd231sd data(%rip), %xmm1, %xmm2
	vpgatherdd %xmm0, (%rax,%xmm1,1), %xmm2
	vbroadcastss data(%rip), %ymm12
	vcvtsi2sdq data(%rip), %xmm1, %xmm2
	vpextrq $1, %xmm3, data(%rip)
	vmovd data(%rip), %xmm13
	vzeroupper
	andn data(%rip), %rsi, %rdi
	bextr %rsi, data(%rip), %rdi
	shlx %rbx, data(%rip), %rsi
	sarx %rdi, data(%rip), %rsi
	rorx $7, data(%rip), %rbx
	mulx data(%rip), %rsi, %rdi
	pdep data(%rip), %rsi, %rbx
	pext data(%rip), %rdi, %rbx
	blsr data(%rip), %rbx
	bzhi %rsi, data(%rip), %rbx
	adcx data(%rip), %rbx
	adox data(%rip), %rsi
	vmovdqu64 data(%rip), %zmm0
	vmovdqu8 %xmm5, data(%rip)
	vmovdqu8 data(%rip), %xmm20
	vpaddd data(%rip){1to4}, %xmm1, %xmm2
	vpternlogd $0xd8, data(%rip), %xmm1, %xmm2
	vmovdqu32 data(%rip), %xmm3{%k1}{z}
	vcvttsd2usi data(%rip), %rsi
	vpcmpub $1, data(%rip), %xmm1, %k2
	kmovq data(%rip), %k3
	vcvtusi2sdq data(%rip), %xmm1, %xmm2
	vfmaddps data(%rip), %xmm1, %xmm2, %xmm3
	vprotd $3, data(%rip), %xmm1
	# x87
	fldl data(%rip)
	fstpl data(%rip)
	fildq data(%rip)
	fnstcw data(%rip)
	fldcw data(%rip)
	fwait
	fnstsw %ax
	# system, allowed in user mode
	cpuid
	xgetbv
	lfence
	mfence
	pause
	ud2
	ud1 data(%rip), %eax
	# control
	.irp cc, o, no, b, ae, e, ne, be, a, s, ns, p, np, l, ge, le, g
	j\cc .+0x20
	j\cc .+0x2000
	.endr
	jmp .+0x30
	jmp .-0x30
	jmp .+0x2100
	bnd jmp .+0x2100
	loop .+0x20
	loope .-0x20
	loopne .+0x40
	jrcxz .+0x20
	jecxz .+0x20
	addr32 loop .+0x20
	call .+0x200
	call .+5
	bnd call .+0x300
	call *%rax
	call *%r11
	call *data-0x100(%rip)
	call *(%rax)
	call *8(%rsp)
	call *(%rsp)
	call *8(%rsp,%rax,8)
	call *127(%rsp)
	call *16(%r12)
	call *(%rbx,%rcx,1)
	call *data-0xf8(%eip)
	jmp *%rdx
	jmp *%r9
	notrack jmp *%rax
	jmp *data-0x100(%rip)
	jmp *(%rsi)
	jmp *8(%rsp)
