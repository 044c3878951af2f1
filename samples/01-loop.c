// The loop that every profiler complains about: allocate, work, free, again and again.
//
//   gcc -O2 -o 01-loop 01-loop.c -ldl
//   ./01-loop                                          # without the library
//   LD_PRELOAD=/path/to/libcachealloc.so ./01-loop     # the same lines, fewer calls reach the driver
//
// Needs no CUDA headers and no CUDA toolkit: it asks the driver for what it uses, by name. An optional
// argument is the number of rounds.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef unsigned long long CUdeviceptr;

static CUresult (*cuInit)(unsigned flags);
static CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
static CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device);
static CUresult (*cuCtxSetCurrent)(CUcontext context);
static CUresult (*cuCtxSynchronize)(void);
static CUresult (*cuMemAlloc)(CUdeviceptr *address, size_t bytes);
static CUresult (*cuMemFree)(CUdeviceptr address);
static CUresult (*cuMemsetD32)(CUdeviceptr address, unsigned value, size_t count);
static CUresult (*cuMemcpyDtoD)(CUdeviceptr to, CUdeviceptr from, size_t bytes);
static CUresult (*cuMemcpyDtoH)(void *to, CUdeviceptr from, size_t bytes);

static void *driver;

static void *find(const char *name) {
    void *function = dlsym(driver, name);
    if (!function) {
        fprintf(stderr, "the CUDA driver has no %s\n", name);
        exit(2);
    }
    return function;
}

static void check(CUresult result, const char *what) {
    if (result) {
        fprintf(stderr, "%s failed: CUDA error %d\n", what, result);
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

static void load_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(2);
    }
    cuInit = find("cuInit");
    cuDeviceGet = find("cuDeviceGet");
    cuDevicePrimaryCtxRetain = find("cuDevicePrimaryCtxRetain");
    cuCtxSetCurrent = find("cuCtxSetCurrent");
    cuCtxSynchronize = find("cuCtxSynchronize");
    cuMemAlloc = find("cuMemAlloc_v2");
    cuMemFree = find("cuMemFree_v2");
    cuMemsetD32 = find("cuMemsetD32_v2");
    cuMemcpyDtoD = find("cuMemcpyDtoD_v2");
    cuMemcpyDtoH = find("cuMemcpyDtoH_v2");
}

// One round as numerical code does it: an input and a scratch buffer of this round's size, some
// work, a small result back on the host, and everything freed again.
static uint64_t round_of_work(unsigned round) {
    static const size_t sizes[] = {4096, 64 << 10, 700 << 10, 3 << 20, 12 << 20, 33 << 20};
    size_t bytes = sizes[round % 6];
    CUdeviceptr input, scratch;
    CHECK(cuMemAlloc(&input, bytes));
    CHECK(cuMemAlloc(&scratch, bytes));
    CHECK(cuMemsetD32(input, round + 1, bytes / 4));
    CHECK(cuMemcpyDtoD(scratch, input, bytes));
    uint32_t first, last;
    CHECK(cuMemcpyDtoH(&first, scratch, sizeof first));
    CHECK(cuMemcpyDtoH(&last, scratch + bytes - sizeof last, sizeof last));
    CHECK(cuMemFree(scratch));
    CHECK(cuMemFree(input));
    return (uint64_t)first + last;
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 600;
    load_driver();
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));

    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++)
        sum += round_of_work(round);
    CHECK(cuCtxSynchronize());

    uint64_t expected = (uint64_t)rounds * (rounds + 1);
    printf("%u rounds, %u allocations, sum %llu: %s\n", rounds, 2 * rounds, (unsigned long long)sum,
           sum == expected ? "ok" : "WRONG");
    return sum != expected;
}
