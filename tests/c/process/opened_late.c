// opened_late LIBRARY: opens the library when threads may begin, which is too late for thread-local
// variables at the same place in each of them. Each thread keeps its own blocks.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int (*set_current)(void *), (*alloc)(uint64_t *, uint64_t), (*release)(uint64_t);
static void *context;

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        exit(2);
    return found;
}

static void *pairs(void *unused) {
    if (set_current(context))
        exit(3);
    for (int i = 0; i < 1000; i++) {
        uint64_t address;
        if (alloc(&address, 65536) || release(address))
            exit(4);
    }
    return unused;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *ours = dlopen(argv[argc - 1], RTLD_NOW | RTLD_GLOBAL);
    if (!driver || !ours)
        return 1;
    int (*init)(unsigned) = find(ours, "cuInit");
    int (*retain)(void **, int) = find(ours, "cuDevicePrimaryCtxRetain");
    set_current = find(driver, "cuCtxSetCurrent");
    alloc = find(ours, "cuMemAlloc_v2"), release = find(ours, "cuMemFree_v2");
    if (init(0) || retain(&context, 0))
        return 5;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], 0, pairs, 0);
    pairs(0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    puts("done");
}
