// Shared by the C programs of the tests: checks that print where they failed, and the driver
// functions that the programs need, looked up as CUDA's own runtime does.
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                           \
        }                                                                       \
    } while (0)

// Calls that must return 0; another code is printed.
#define OK(call)                                                                         \
    do {                                                                                 \
        int code_ = (call);                                                              \
        if (code_) {                                                                     \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, code_); \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

// Returns the name of the file that contains an address, without its folder.
__attribute__((unused)) static const char *file_of(void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return "nowhere";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

typedef unsigned long long Pointer;

static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuCtxSynchronize)(void);
static int (*cuMemAlloc)(Pointer *, size_t);
static int (*cuMemFree)(Pointer);
__attribute__((unused)) static int (*cuMemsetD8)(Pointer, unsigned char, size_t);

// Loads the driver and finds its functions; makes no call.
__attribute__((unused)) static void find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(2);
    }
    *(void **)&cuInit = dlsym(driver, "cuInit");
    *(void **)&cuDevicePrimaryCtxRetain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&cuCtxSetCurrent = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&cuCtxSynchronize = dlsym(driver, "cuCtxSynchronize");
    *(void **)&cuMemAlloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&cuMemFree = dlsym(driver, "cuMemFree_v2");
    *(void **)&cuMemsetD8 = dlsym(driver, "cuMemsetD8_v2");
    CHECK(cuInit && cuMemAlloc && cuMemFree);
}

// Starts CUDA in this process and thread.
__attribute__((unused)) static void start_cuda(void) {
    void *context;
    find_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

// A loop in which only the first allocations reach the driver.
__attribute__((unused)) static void loop(int rounds) {
    for (int i = 0; i < rounds; i++) {
        Pointer a, b;
        OK(cuMemAlloc(&a, 4096 << (i % 8)));
        OK(cuMemAlloc(&b, 1000));
        CHECK(a && b && a != b);
        OK(cuMemFree(a));
        OK(cuMemFree(b));
    }
}
#endif
