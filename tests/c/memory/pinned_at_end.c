// pinned_at_end: a thread frees pinned memory while its context ends, and the next context gets the
// same address. Prints how often memory of the new context was lost.
#include "../check.h"
#include <pthread.h>

enum { ROUNDS = 60, BYTES = 1 << 20, MEMORY_TYPE = 2 };

static int (*alloc_as)(void **, size_t, unsigned), (*free_host)(void *), (*question)(void *, int, Pointer);
static int (*make)(void **, unsigned, int), (*end)(void *), (*set)(void *);
static void *context, *memory;
static volatile int turn;

static void *other(void *unused) {
    for (;;) {
        while (turn != 1 && turn != 2)
            ;
        if (turn == 2)
            return NULL;
        set(context);
        turn = 0;
        // Fails if the context has already ended.
        free_host(memory);
        turn = 3;
    }
}

int main(void) {
    pthread_t thread;
    int taken = 0;
    find_driver();
    OK(cuInit(0));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&alloc_as = dlsym(driver, "cuMemHostAlloc");
    *(void **)&free_host = dlsym(driver, "cuMemFreeHost");
    *(void **)&question = dlsym(driver, "cuPointerGetAttribute");
    *(void **)&make = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&end = dlsym(driver, "cuCtxDestroy_v2");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    pthread_create(&thread, NULL, other, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        void *kept, *freed;
        int type;
        OK(make(&context, 0, 0));
        OK(alloc_as(&memory, BYTES, 0));
        turn = 1;
        while (turn == 1)
            ;
        end(context);
        while (turn != 3)
            ;
        OK(make(&context, 0, 0));
        OK(alloc_as(&kept, BYTES, 0));
        OK(alloc_as(&freed, BYTES, 0));
        taken += free_host(freed) != 0;
        taken += question(&type, MEMORY_TYPE, (Pointer)kept) != 0;
        OK(end(context));
    }
    turn = 2;
    pthread_join(thread, NULL);
    printf("taken %d\n", taken);
    return 0;
}
