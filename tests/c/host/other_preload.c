// Another preloaded library: it counts `malloc`, and with -DCUDA also the program's
// `cuMemAlloc_v2`, and passes each call to the next library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int mallocs, allocations;
static _Thread_local int searching;

// Memory that `dlsym` itself may request during the look-up of the real `malloc`.
static char early[4096];
static size_t early_used;

void *malloc(size_t bytes) {
    static void *(*_Atomic next)(size_t);
    if (!next) {
        if (searching) {
            early_used = (early_used + bytes + 15) / 16 * 16;
            return early_used <= sizeof early ? early + early_used - (bytes + 15) / 16 * 16 : NULL;
        }
        searching = 1;
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        searching = 0;
    }
    mallocs++;
    return next(bytes);
}

static void (*_Atomic next_free)(void *);
void free(void *block) {
    if ((char *)block >= early && (char *)block < early + sizeof early)
        return;
    if (!next_free)
        next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(block);
}

// Looked up early: a look-up takes the loader's lock, and a thread may hold a lock of the driver
// later.
__attribute__((constructor)) static void find_early(void) {
    void *volatile block = malloc(1);
    free(block);
}

#ifdef CUDA
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes) {
    static int (*_Atomic next)(unsigned long long *, size_t);
    if (!next)
        next = (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (!next)
        return 999;
    allocations++;
    return next(pointer, bytes);
}
#endif

__attribute__((destructor)) static void report(void) {
    char text[80];
    int length = snprintf(text, sizeof text, "other: malloc %s, cuMemAlloc %d\n", mallocs ? "seen" : "never seen", allocations);
    (void)!write(2, text, length);
}
