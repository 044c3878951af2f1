// growth COUNT: makes COUNT allocations of random sizes, with some GiB of them live at once, and
// prints by how many KiB the host memory of the process has grown.
// growth COUNT BYTES: makes COUNT allocations of this size, or of random sizes from 128 KiB to 4 MiB
// if it is 0, keeps them all, and prints by how many bytes the host memory has grown for each.
#include "resident.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 1000

static uint64_t seed = 7;
static uint64_t dice(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (argc < 2 || !driver)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, uint64_t) = (int (*)(uint64_t *, uint64_t))dlsym(driver, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set_current(context))
        return 2;
    static uint64_t blocks[BLOCKS];
    // Memory that only the first allocations take is excluded.
    for (int i = 0; argc > 2 && i < 100; i++)
        if (alloc(blocks, 4096))
            return 1;
    long before = resident_kb(), count = atol(argv[1]), bytes = argc > 2 ? atol(argv[2]) : 0;
    for (long i = 0; argc > 2 && i < count; i++) {
        int power = 17 + dice() % 5;
        if (alloc(blocks, bytes ? bytes : (1ull << power) + dice() % (1ull << power)))
            return 1;
    }
    if (argc > 2) {
        printf("%ld\n", (resident_kb() - before) * 1024 / count);
        return 0;
    }
    for (long i = count; i > 0; i--) {
        uint64_t *block = &blocks[dice() % BLOCKS];
        if (*block && release(*block))
            return 1;
        int power = 14 + dice() % 11;
        if (alloc(block, (1ull << power) + dice() % (1ull << power)))
            return 1;
    }
    printf("%ld\n", resident_kb() - before);
    return 0;
}
