// A program that runs out of memory, for a reason that its error does not name: the activations of each step are kept.
//
//   gcc -O2 -g -o 07-out-of-memory 07-out-of-memory.c -ldl
//   cachealloc run --report oom.html --gpu-memory-limit-mb 256 -- ./07-out-of-memory
//
// Needs no CUDA headers and no CUDA toolkit: it asks the driver for what it uses, by name.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define KEEP __attribute__((noinline))

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

static CUresult (*cuMemAlloc)(CUdeviceptr *address, size_t bytes);

static void *find(void *driver, const char *name) {
    void *function = driver ? dlsym(driver, name) : NULL;
    if (!function) {
        fprintf(stderr, "no CUDA driver with %s\n", name);
        exit(2);
    }
    return function;
}

static void start(void) {
    void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*cuInit)(unsigned) = (CUresult (*)(unsigned))find(driver, "cuInit");
    CUresult (*retain)(void **, int) = (CUresult (*)(void **, int))find(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*set)(void *) = (CUresult (*)(void *))find(driver, "cuCtxSetCurrent");
    cuMemAlloc = (CUresult (*)(CUdeviceptr *, size_t))find(driver, "cuMemAlloc_v2");
    if (cuInit(0) || retain(&context, 0) || set(context)) {
        fprintf(stderr, "no GPU\n");
        exit(2);
    }
}

KEEP static void get(CUdeviceptr *address, size_t bytes) {
    CUresult result = cuMemAlloc(address, bytes);
    if (result) {
        printf("CUDA error %d\n", result); // all that such programs say
        exit(1);
    }
}

KEEP static CUdeviceptr load_weights(void) {
    CUdeviceptr weights;
    get(&weights, 96 * MIB);
    return weights;
}

KEEP static CUdeviceptr forward(void) {
    CUdeviceptr activations; // never freed
    get(&activations, 20 * MIB);
    return activations;
}

int main(void) {
    CUdeviceptr kept = 0;
    start();
    kept += load_weights();
    for (int step = 0; step < 100; step++)
        kept += forward();
    return kept == 0;
}
