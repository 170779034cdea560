# System calls whose numbers are known, or not. It is never run.
    .macro func name
    .globl \name
    .type \name, @function
\name:
    .endm
    .macro done name
    ret
    .size \name, . - \name
    .endm
    .text
    func plain
    mov $39, %eax
    syscall
    done plain
    func forks
    mov $0x11, %edi
    mov $56, %eax
    syscall
    done forks
    func clones
    mov $56, %eax
    syscall
    done clones
    func threads
    movq $435, %rax
    syscall
    done threads
    func ends
    mov $60, %edx
    test %edi, %edi
    je 1f
    mov $231, %edx
1:  mov %edx, %eax
    syscall
    jmp 1b
    done ends
    func either
    mov $60, %edx
    test %edi, %edi
    je 1f
    mov $58, %edx
1:  mov %edx, %eax
    syscall
    done either
    func given
    mov %rdi, %rax
    mov %rsi, %rdx
    syscall
    done given
    func stored
    mov 8(%rsi), %eax
    syscall
    done stored
    func entered
    test %edi, %edi
    je 1f
    mov %rsi, %rax
1:  syscall
    done entered
    func inside
    mov $0x050f, %eax
    done inside
    func names
    mov $15, %edi
    mov $157, %eax
    syscall
    done names
    func controls
    mov $157, %eax
    syscall
    done controls
    func filters
    mov $1, %edi
    mov $317, %eax
    syscall
    done filters
    func available
    mov $2, %edi
    mov $317, %eax
    syscall
    done available
    func called
    mov $186, %r9d
    call plain
    mov %r9d, %eax
    syscall
    done called
    func unmaps
    mov $11, %eax
    syscall
    done unmaps
    func maps
    mov $9, %eax
    mov %rcx, %r10
    syscall
    done maps
    .globl main
    .type main, @function
main:
    xor %eax, %eax
    done main
    .section .note.GNU-stack, "", @progbits
