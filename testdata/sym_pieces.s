# Names of what compilers split off: parts that are jumped to, and functions.
	.text
	.globl	_start
	.type	_start, @function
_start:
	call	whole
	call	outlined.cold.1
	call	whole.part.0
	call	copied.constprop.0.isra.0
	hlt
	.size	_start, .-_start

	.macro	piece name
	.type	\name, @function
\name:
	.cfi_startproc
	nop
	ret
	.cfi_endproc
	.size	\name, .-\name
	.endm

	piece	whole.cold
	piece	whole.cold.12
	piece	whole.part.0.cold
	piece	whole.warm
	piece	whole.__part.3
	piece	_ZN2ns1fEi.isra.0.cold
	piece	_ZN5crate4work17h0123456789abcdefE.cold
	piece	outlined.cold.1
	piece	whole.part.0
	piece	copied.constprop.0.isra.0
	piece	scold
	piece	whole.colder
	piece	whole
	.section .note.GNU-stack,"",@progbits
