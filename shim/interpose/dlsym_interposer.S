/* dlsym, dlvsym and dlopen: ask dlsym_interposer.cc, then either return the hook or jump to the real
 * function with every argument register and the caller's return address as they were. The jump
 * (not a call) is the point: glibc reads the return address. */

        .text

#if defined(__x86_64__)

/* Both ask with (handle, name, caller) and answer {rax = hook or 0, rdx = real}. */
        .macro lookup_trampoline name
        .globl  \name
        .type   \name, @function
        .balign 16
\name:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx          /* the return address */
        call    fracgpu_answer_\name
        movq    %rdx, %r11
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jnz     1f
        testq   %r11, %r11
        jz      1f                      /* no real function at all: NULL, as if not found */
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   \name, .-\name
        .endm

        lookup_trampoline dlsym
        lookup_trampoline dlvsym

/* Asks with (file, flags, caller) and answers {rax = flags to use, rdx = real}. */
        .globl  dlopen
        .type   dlopen, @function
        .balign 16
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        subq    $16, %rsp
        .cfi_adjust_cfa_offset 16
        movq    24(%rsp), %rdx          /* the return address */
        call    fracgpu_answer_dlopen
        addq    $16, %rsp
        .cfi_adjust_cfa_offset -16
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        movl    %eax, %esi
        testq   %rdx, %rdx
        jz      1f
        jmp     *%rdx
1:      xorl    %eax, %eax
        ret
        .cfi_endproc
        .size   dlopen, .-dlopen

#elif defined(__aarch64__)

        .macro lookup_trampoline name
        .globl  \name
        .type   \name, %function
        .balign 16
\name:
        .cfi_startproc
        stp     x29, x30, [sp, #-48]!
        .cfi_adjust_cfa_offset 48
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        mov     x2, x30
        bl      fracgpu_answer_\name
        mov     x16, x1
        mov     x17, x0
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_adjust_cfa_offset -48
        cbnz    x17, 1f
        cbz     x16, 1f
        br      x16
1:      mov     x0, x17
        ret
        .cfi_endproc
        .size   \name, .-\name
        .endm

        lookup_trampoline dlsym
        lookup_trampoline dlvsym

        .globl  dlopen
        .type   dlopen, %function
        .balign 16
dlopen:
        .cfi_startproc
        stp     x29, x30, [sp, #-32]!
        .cfi_adjust_cfa_offset 32
        str     x0, [sp, #16]
        mov     x2, x30
        bl      fracgpu_answer_dlopen
        mov     x16, x1
        mov     x1, x0
        ldr     x0, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_adjust_cfa_offset -32
        cbz     x16, 1f
        br      x16
1:      mov     x0, xzr
        ret
        .cfi_endproc
        .size   dlopen, .-dlopen

#else
#error "dlsym_interposer.S has no code for this architecture"
#endif

        .section .note.GNU-stack, "", %progbits
