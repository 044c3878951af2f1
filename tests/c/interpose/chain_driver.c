// A `libcuda.so.1` that only forwards to another file next to it, `inner/libcuda_inner.so.1`. -I a
// folder with `names.h`, which has F(name) for each function.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__
#define JUMP(name) "jmp *slot_" #name "(%rip)\n"
#else
#define JUMP(name) "adrp x16, slot_" #name "\nldr x16, [x16, #:lo12:slot_" #name "]\nbr x16\n"
#endif
#define F(name)                                                                            \
    __attribute__((visibility("hidden"), used)) void *slot_##name;                         \
    __asm__(".text\n.globl " #name "\n.type " #name ", %function\n.balign 16\n" #name ":\n" JUMP(name) \
            ".size " #name ", . - " #name "\n");
#include "names.h"
#undef F

static int absent(void) { return 801; }

static const struct {
    const char *name;
    void **slot;
} functions[] = {
#define F(name) {#name, &slot_##name},
#include "names.h"
};

__attribute__((constructor)) static void load(void) {
    Dl_info own;
    char path[PATH_MAX + 40];
    if (!dladdr((void *)functions, &own))
        _exit(9);
    snprintf(path, PATH_MAX, "%s", own.dli_fname);
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "inner/libcuda_inner.so.1");
    void *inner = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!inner)
        _exit(9);
    for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(inner, functions[i].name);
        *functions[i].slot = found ? found : (void *)absent;
    }
}
