// live_blocks COUNT BYTES: allocates COUNT blocks and prints how many bytes of host memory the
// process has taken for each. BYTES 0: random sizes from 128 KiB to 4 MiB.
#include "resident.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 7;
static uint64_t dice(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (argc != 3 || !driver)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, uint64_t) = (int (*)(uint64_t *, uint64_t))dlsym(driver, "cuMemAlloc_v2");
    if (init(0) || retain(&context, 0) || set_current(context))
        return 2;
    long count = atol(argv[1]), bytes = atol(argv[2]);
    uint64_t block;
    // What is taken once.
    for (int i = 0; i < 100; i++)
        if (alloc(&block, 4096))
            return 1;
    long before = resident_kb();
    for (long i = 0; i < count; i++) {
        int power = 17 + dice() % 5;
        if (alloc(&block, bytes ? bytes : (1ull << power) + dice() % (1ull << power)))
            return 1;
    }
    printf("%ld\n", (resident_kb() - before) * 1024 / count);
    return 0;
}
