// Another preloaded library that interposes each function in `imports.h`. It finds the next
// definition with `dlsym` at the first call, and passes all calls on.
#define _GNU_SOURCE
#include <dlfcn.h>

struct Next {
    const char *name;
    void *address;
};
__attribute__((used, visibility("hidden"))) void *chain_next(struct Next *next) {
    if (!next->address)
        next->address = dlsym(RTLD_NEXT, next->name);
    return next->address;
}

// The arguments stay where they are.
#define F(name)                                                                                    \
    __attribute__((used)) static struct Next next_##name = {#name, 0};                             \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n"                           \
            "push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax\n"          \
            "lea next_" #name "(%rip), %rdi\ncall chain_next\nmov %rax, %r11\n"                    \
            "pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi\njmp *%r11\n");
#include "imports.h"
