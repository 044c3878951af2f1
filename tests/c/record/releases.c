// releases: ends memory in every way that a program can. Each way has a separate function, which the
// entry of the end must show; `take` got the memory.
#include "../check.h"
#include "../../../include/cachealloc.h"

#define OWN __attribute__((noinline, noclone))
#define FIND(name) *(void **)&name = dlsym(driver, #name)

static int (*cuMemAllocManaged)(Pointer *, size_t, unsigned);
static int (*cuMemCreate)(Pointer *, size_t, const void *, long long);
static int (*cuMemAddressReserve)(Pointer *, size_t, size_t, Pointer, long long);
static int (*cuMemMap)(Pointer, size_t, size_t, Pointer, long long);
static int (*cuMemUnmap)(Pointer, size_t);
static int (*cuArrayCreate_v2)(Pointer *, const void *), (*cuArrayDestroy)(Pointer);
static int (*cuMemHostAlloc)(void **, size_t, unsigned), (*cuMemFreeHost)(void *);
static int (*cuMemHostRegister_v2)(void *, size_t, unsigned), (*cuMemHostUnregister)(void *);
static int (*cuDevicePrimaryCtxReset_v2)(int);

static Pointer cached, managed, physical, address, array, left;
static void *host, *registered;

OWN static void take(void) {
    const int on_device[8] = {1, 0, 1};
    const long long floats[3] = {1024, 1024, 1ll << 32 | 0x20};
    OK(cuMemAlloc(&cached, 40 << 20));
    OK(cuMemAllocManaged(&managed, 1 << 20, 1));
    OK(cuMemCreate(&physical, 2 << 20, on_device, 0));
    OK(cuMemAddressReserve(&address, 2 << 20, 0, 0, 0));
    OK(cuMemMap(address, 2 << 20, 0, physical, 0));
    OK(cuArrayCreate_v2(&array, floats));
    OK(cuMemHostAlloc(&host, 1 << 16, 0));
    registered = aligned_alloc(4096, 1 << 16);
    OK(cuMemHostRegister_v2(registered, 1 << 16, 0));
}

OWN static void take_most(void) {
    OK(cuMemAlloc(&cached, 600 << 20));
    OK(cuMemFree(cached));
}

OWN static void take_last(void) {
    OK(cuMemAlloc(&left, 3 << 20));
}

OWN static void by_trim(void) {
    CHECK(cachealloc_trim(-1) >= 40 << 20);
}

OWN static void by_driver_free(void) {
    OK(cuMemFree(managed));
}

OWN static void by_unmap(void) {
    OK(cuMemUnmap(address, 2 << 20));
}

OWN static void by_array(void) {
    OK(cuArrayDestroy(array));
}

OWN static void by_free_host(void) {
    OK(cuMemFreeHost(host));
}

OWN static void by_unregister(void) {
    OK(cuMemHostUnregister(registered));
}

// The device has no room for both.
OWN static void by_retry(void) {
    OK(cuMemAlloc(&cached, 700 << 20));
    OK(cuMemFree(cached));
}

OWN static void by_reset(void) {
    OK(cuDevicePrimaryCtxReset_v2(0));
}

int main(void) {
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    FIND(cuMemAllocManaged), FIND(cuMemCreate), FIND(cuMemAddressReserve), FIND(cuMemMap), FIND(cuMemUnmap);
    FIND(cuArrayCreate_v2), FIND(cuArrayDestroy), FIND(cuMemHostAlloc), FIND(cuMemFreeHost);
    FIND(cuMemHostRegister_v2), FIND(cuMemHostUnregister), FIND(cuDevicePrimaryCtxReset_v2);
    take();
    OK(cuMemFree(cached));
    by_trim();
    by_driver_free();
    by_unmap();
    by_array();
    by_free_host();
    by_unregister();
    take_most();
    by_retry();
    take_last();
    by_reset();
    return 0;
}
