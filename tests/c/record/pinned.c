// pinned HOW: host memory that the device can access: allocated, registered, mapped. Some of it is
// freed, and some requests are refused.
#include "../check.h"
#include <signal.h>
#include <string.h>

static _Alignas(4096) char own[64 << 10];

int main(int count, char **words) {
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*alloc)(void **, size_t, unsigned) = dlsym(driver, "cuMemHostAlloc");
    int (*alloc_plain)(void **, size_t) = dlsym(driver, "cuMemAllocHost_v2");
    int (*free_host)(void *) = dlsym(driver, "cuMemFreeHost");
    int (*register_host)(void *, size_t, unsigned) = dlsym(driver, "cuMemHostRegister_v2");
    int (*unregister)(void *) = dlsym(driver, "cuMemHostUnregister");
    int (*create)(Pointer *, size_t, const void *, long long) = dlsym(driver, "cuMemCreate");
    int (*reserve)(Pointer *, size_t, size_t, Pointer, long long) = dlsym(driver, "cuMemAddressReserve");
    int (*map)(Pointer, size_t, size_t, Pointer, long long) = dlsym(driver, "cuMemMap");
    const int on_host[8] = {1, 0, 2};
    void *first, *second;
    Pointer physical, address, block;
    OK(cuMemAlloc(&block, 1000));
    OK(alloc(&first, 1 << 20, 0));
    OK(alloc_plain(&second, 2 << 20));
    OK(register_host(own, sizeof own, 0));
    CHECK(register_host(own, sizeof own, 0) && unregister(first + 1) && free_host(own));
    OK(free_host(first));
    OK(create(&physical, 4 << 20, on_host, 0));
    OK(reserve(&address, 4 << 20, 0, 0, 0));
    OK(map(address, 4 << 20, 0, physical, 0));
    if (!strcmp(words[1], "killed"))
        raise(SIGKILL);
    return 0;
}
