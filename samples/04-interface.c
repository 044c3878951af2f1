// Uses the functions of the library if it is loaded; the program also runs without it.
//
//   gcc -O2 -I../include -o 04-interface 04-interface.c -ldl
//   ./04-interface
//   LD_PRELOAD=/path/to/libcachealloc.so ./04-interface
//
// The functions of cachealloc.h are weak symbols: NULL without the library. Needs no CUDA toolkit.
#include "cachealloc.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;

static int (*cuMemAlloc)(CUdeviceptr *address, size_t bytes);
static int (*cuMemFree)(CUdeviceptr address);

static void start_cuda(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(2);
    }
    int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *);
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&cuMemAlloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&cuMemFree = dlsym(driver, "cuMemFree_v2");
    if (!set_current || !cuMemAlloc || !cuMemFree || init(0) || retain(&context, 0) || set_current(context)) {
        fprintf(stderr, "CUDA does not start\n");
        exit(2);
    }
}

// A memory hook of this thread: how much the program takes from the cache, and the cache from the
// driver.
static struct totals {
    size_t from_cache, from_driver;
} totals;

static void from_driver(void *data, int device, size_t mem_size, uint64_t mem_ptr) {
    (void)device;
    if (mem_ptr)
        ((struct totals *)data)->from_driver += mem_size;
}

static void from_cache(void *data, int device, size_t size, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)device, (void)size, (void)pmem_id;
    if (mem_ptr)
        ((struct totals *)data)->from_cache += mem_size;
}

static const cachealloc_hook hook = {.size = sizeof hook,
                                     .name = "totals",
                                     .data = &totals,
                                     .alloc_postprocess = from_driver,
                                     .malloc_postprocess = from_cache};

static void work(void) {
    for (int i = 0; i < 10; i++) {
        CUdeviceptr address;
        if (cuMemAlloc(&address, 30 << 20) || cuMemFree(address))
            exit(1);
    }
}

int main(void) {
    start_cuda();
    if (!cachealloc_version) {
        work();
        puts("cachealloc is not here");
        return 0;
    }
    printf("cachealloc %s\n", cachealloc_version());

    cachealloc_hook_push(&hook);
    work();
    cachealloc_hook_pop(&hook);
    printf("%zu MiB from the cache, %zu MiB from the driver\n", totals.from_cache >> 20, totals.from_driver >> 20);

    // Records from here on, with stacks, whatever the options say.
    cachealloc_record("all");
    work();
    int code = cachealloc_snapshot("interface.pickle");
    printf("snapshot: %s\n", code ? "failed" : "interface.pickle");
    cachealloc_record("off");

    // Releases cached memory before another program needs it.
    printf("%lld MiB released\n", (long long)cachealloc_trim(-1) >> 20);
    return 0;
}
