// random_requests COUNT: makes COUNT allocations of random sizes from 512 bytes to 64 MiB, with
// 5,000 of them alive at once, and repeatedly checks the statistics against its own counts. Prints
// the process's host memory in KiB and device memory in MiB, after the first part of the
// allocations and at the end.
#include "resident.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS 5000
#define FIRST_PART 100000

static int (*stat)(int, const char *, int64_t *);
static int64_t get(const char *key) {
    int64_t value = -1;
    if (stat(0, key, &value))
        exit(3);
    return value;
}

static uint64_t seed = 7;
static uint64_t dice(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static int64_t allocated, freed, requested;

// Exact at every moment between two calls.
static int counts_agree(void) {
    return get("allocation.all.allocated") == allocated && get("allocation.all.freed") == freed &&
           get("allocation.all.current") == allocated - freed && get("requested_bytes.all.current") == requested;
}

static void say(void) { printf("%ld %ld\n", resident_kb(), (long)(get("reserved_bytes.all.current") >> 20)); }

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (argc != 2 || !driver)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, uint64_t) = (int (*)(uint64_t *, uint64_t))dlsym(driver, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    stat = (int (*)(int, const char *, int64_t *))dlsym(RTLD_DEFAULT, "cachealloc_stat");
    if (!stat || init(0) || retain(&context, 0) || set_current(context))
        return 2;
    static struct { uint64_t address, bytes; } blocks[BLOCKS];
    long count = atol(argv[1]);
    for (long i = 1; i <= count; i++) {
        int place = dice() % BLOCKS;
        if (blocks[place].address) {
            if (release(blocks[place].address))
                return 1;
            freed++, requested -= blocks[place].bytes;
        }
        uint64_t least = 512ull << dice() % 17;
        blocks[place].bytes = least + dice() % least;
        if (alloc(&blocks[place].address, blocks[place].bytes))
            return 1;
        allocated++, requested += blocks[place].bytes;
        if (i % FIRST_PART == 0 && !counts_agree()) {
            printf("not exact after %ld\n", i);
            return 4;
        }
        if (i == FIRST_PART)
            say();
    }
    say();
    return 0;
}
