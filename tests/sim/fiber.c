/* A switch saves what the calling convention says a call preserves, nothing else: some 5 ns. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

__asm__(".text\n.globl fiber_switch\n.hidden fiber_switch\n.type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n"
        "    popq %rbp\n    ret\n"
        ".size fiber_switch, . - fiber_switch\n");

void *fiber_make(void *stack, size_t bytes, void (*entry)(void)) {
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    uint64_t *sp = (uint64_t *)(top - 64); /* six registers, entry, a return address of 0 */
    memset(sp, 0, 64);
    sp[6] = (uint64_t)(uintptr_t)entry;
    return sp;
}

#elif defined(__aarch64__)

__asm__(".text\n.globl fiber_switch\n.hidden fiber_switch\n.type fiber_switch, %function\n"
        "fiber_switch:\n"
        "    stp x19, x20, [sp, #-160]!\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    ldp x19, x20, [sp], #160\n    ret\n"
        ".size fiber_switch, . - fiber_switch\n");

void *fiber_make(void *stack, size_t bytes, void (*entry)(void)) {
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    uint64_t *sp = (uint64_t *)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (uint64_t)(uintptr_t)entry; /* x30 */
    return sp;
}

#else

#include <ucontext.h>

void fiber_switch(void **save, void *load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, load);
}

void *fiber_make(void *stack, size_t bytes, void (*entry)(void)) {
    ucontext_t *context = stack; /* at the stack's far end */
    size_t head = (sizeof *context + 63) / 64 * 64;
    getcontext(context);
    context->uc_stack.ss_sp = (char *)stack + head;
    context->uc_stack.ss_size = bytes - head;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    return context;
}

#endif
