// snapshots_beside COUNT: writes COUNT snapshots while threads replace random blocks of many.
#include "../check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define BLOCKS 2000

static atomic_int ends;
static atomic_long replaced;

static void *replace(void *number) {
    static __thread Pointer blocks[BLOCKS];
    void *context;
    uint64_t dice = 2 * (uintptr_t)number + 1;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (long i = 0; !ends; i++) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        Pointer *block = &blocks[i < BLOCKS ? i : dice % BLOCKS];
        if (*block)
            OK(cuMemFree(*block));
        OK(cuMemAlloc(block, 512 + dice % 8 * 600));
        replaced++;
    }
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int (*snapshot)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "cachealloc_snapshot");
    CHECK(snapshot);
    start_cuda();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], 0, replace, (void *)i));
    for (int i = 0; i < atoi(argv[1]); i++) {
        char name[32];
        // First waits until all blocks exist.
        for (long wanted = replaced + THREADS * BLOCKS; replaced < wanted;)
            usleep(1000);
        snprintf(name, sizeof name, "%d.pickle", i);
        OK(snapshot(name));
    }
    ends = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    return 0;
}
