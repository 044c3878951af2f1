// several_sizes THREADS: threads that each allocate and free several sizes in turn, with random
// working sets, while another requests statistics, a reset of the peak and a trim. The statistics are
// exact at the end, no block has two owners at once, and nothing is left.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 4000
#define SIZES 24
#define HELD 16

static int (*cuMemcpyDtoH)(void *, Pointer, size_t), (*cuMemcpyHtoD)(Pointer, const void *, size_t);
static _Atomic long long calls, bytes_in_all, requested_in_all;
static atomic_int ended;

static long long stat(const char *key) {
    int64_t value = -77;
    OK(cachealloc_stat(0, key, &value));
    return value;
}

static void *work(void *number) {
    uint64_t seed = 88172645463325252ull + (uintptr_t)number;
    struct { Pointer block; size_t bytes; uint32_t mark; } held[HELD] = {0};
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int round = 0; round < ROUNDS; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        int place = seed % HELD, size = seed / HELD % SIZES;
        if (held[place].block) {
            uint32_t mark = 0;
            // If another thread has been given the same block, its mark is there by now.
            OK(cuMemcpyDtoH(&mark, held[place].block, sizeof mark));
            CHECK(mark == held[place].mark);
            OK(cuMemFree(held[place].block));
        }
        held[place].bytes = 4096 * (1 + size * 7 % 61) - seed / 1024 % 512;
        held[place].mark = seed;
        OK(cuMemAlloc(&held[place].block, held[place].bytes));
        OK(cuMemcpyHtoD(held[place].block, &held[place].mark, sizeof held[place].mark));
        calls += 1;
        bytes_in_all += (held[place].bytes + 511) / 512 * 512;
        requested_in_all += held[place].bytes;
    }
    for (int place = 0; place < HELD; place++)
        OK(held[place].block ? cuMemFree(held[place].block) : 0);
    ended++;
    return 0;
}

int main(int count, char **words) {
    pthread_t threads[64];
    CHECK(count == 2);
    int wanted = atoi(words[1]);
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemcpyDtoH = dlsym(driver, "cuMemcpyDtoH_v2");
    *(void **)&cuMemcpyHtoD = dlsym(driver, "cuMemcpyHtoD_v2");
    Pointer first;
    OK(cuMemAlloc(&first, 4096) || cuMemFree(first));
    OK(cachealloc_reset_accumulated_stats(-1));
    for (uintptr_t i = 0; i < wanted; i++)
        CHECK(!pthread_create(&threads[i], 0, work, (void *)i));
    while (ended < wanted) {
        // A statistic is never negative, and never more than what was requested.
        CHECK(stat("allocation.all.current") >= 0 && stat("allocated_bytes.all.peak") <= 64ll * HELD * 61 * 4096);
        CHECK(cachealloc_trim(0) >= 0);
        usleep(2000);
    }
    for (int i = 0; i < wanted; i++)
        pthread_join(threads[i], 0);
    CHECK(stat("allocation.all.allocated") == calls && stat("allocation.all.freed") == calls);
    CHECK(stat("allocated_bytes.all.allocated") == bytes_in_all && stat("allocated_bytes.all.freed") == bytes_in_all);
    CHECK(stat("requested_bytes.all.allocated") == requested_in_all && stat("requested_bytes.all.current") == 0);
    CHECK(stat("allocation.all.current") == 0 && stat("allocated_bytes.all.current") == 0);
    cachealloc_trim(0);
    CHECK(stat("reserved_bytes.all.current") == 0);
    puts("exact");
    return 0;
}
