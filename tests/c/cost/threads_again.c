// threads_again COUNT: COUNT threads, forty at a time. Each allocates and frees one size repeatedly,
// ends, and allocates once more in its own destructors, before and after those of the library. Prints
// by how many KiB the host memory of the process has grown at the end, compared with the first tenth
// of the threads. The last thread still has its own list: a block that it has freed goes to no other
// thread while it lives.
#include "resident.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define AT_ONCE 40

static int (*alloc)(uint64_t *, uint64_t), (*release)(uint64_t);
static pthread_barrier_t all_have;
static pthread_key_t key;

// Runs repeatedly, as often as the system allows.
static void at_end(void *round) {
    uint64_t block;
    if (alloc(&block, 4096) || release(block))
        exit(1);
    if ((uintptr_t)round > 1)
        pthread_setspecific(key, (void *)((uintptr_t)round - 1));
}

static void *work(void *number) {
    uint64_t block;
    for (int i = 0; i < 20; i++) {
        if (alloc(&block, 4096 * (1 + (uintptr_t)number)))
            exit(1);
        if (i == 10)
            pthread_barrier_wait(&all_have);
        if (release(block))
            exit(1);
    }
    pthread_setspecific(key, (void *)8);
    return 0;
}

static uint64_t last;

static void *keep_a_block(void *barrier) {
    for (int i = 0; i < 20; i++)
        if (alloc(&last, 4096) || release(last))
            exit(1);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return 0;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (argc != 2 || !driver)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    alloc = (int (*)(uint64_t *, uint64_t))dlsym(driver, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set_current(context))
        return 2;
    pthread_key_create(&key, at_end);
    pthread_barrier_init(&all_have, 0, AT_ONCE);
    long rounds = atol(argv[1]) / AT_ONCE, before = 0;
    for (long round = 0; round < rounds; round++) {
        pthread_t threads[AT_ONCE];
        if (round == rounds / 10)
            before = resident_kb();
        for (uintptr_t i = 0; i < AT_ONCE; i++)
            if (pthread_create(&threads[i], 0, work, (void *)i))
                return 2;
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], 0);
    }
    long grown_kb = resident_kb() - before;
    pthread_barrier_t both;
    pthread_t thread;
    uint64_t block;
    pthread_barrier_init(&both, 0, 2);
    if (pthread_create(&thread, 0, keep_a_block, &both))
        return 2;
    pthread_barrier_wait(&both);
    if (alloc(&block, 4096) || block == last || release(block))
        return 3;
    pthread_barrier_wait(&both);
    pthread_join(thread, 0);
    printf("%ld\n", grown_kb);
    return 0;
}
