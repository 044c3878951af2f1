// Prints the contents of fresh memory as one byte, then overruns it by a few bytes if requested;
// `async`: for stream-ordered memory.
#include "../check.h"

static int (*cuMemcpyDtoH)(void *, Pointer, size_t);
static int (*range)(Pointer *, size_t *, Pointer);

static int (*cuMemAllocAsync)(Pointer *, size_t, void *);
static int (*cuMemFreeAsync)(Pointer, void *);
static int ordered; // in the order of a stream

static Pointer made_here(size_t bytes) {
    Pointer pointer;
    OK(ordered ? cuMemAllocAsync(&pointer, bytes, 0) : cuMemAlloc(&pointer, bytes));
    return pointer;
}

int main(int count, char **arguments) {
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemcpyDtoH = dlsym(driver, "cuMemcpyDtoH_v2");
    *(void **)&range = dlsym(driver, "cuMemGetAddressRange_v2");
    *(void **)&cuMemAllocAsync = dlsym(driver, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(driver, "cuMemFreeAsync");
    ordered = count > 1 && !strcmp(arguments[count - 1], "async");
    for (int round = 0; round < 20; round++) {  // the later ones from a lookaside list
        unsigned char bytes[1000];
        Pointer pointer = made_here(sizeof bytes), base;
        size_t size;
        OK(range(&base, &size, pointer));
        CHECK(base == pointer && size == sizeof bytes);
        OK(cuMemcpyDtoH(bytes, pointer, sizeof bytes));
        for (int i = 1; i < 1000; i++)
            CHECK(bytes[i] == bytes[0]);
        if (round == 0)
            printf("%02x\n", bytes[0]);
        OK(cuMemsetD8(pointer, 0x33, sizeof bytes + (count > 1 && round == 19 ? atoi(arguments[1]) : 0)));
        OK(ordered ? cuMemFreeAsync(pointer, 0) : cuMemFree(pointer));
    }
    return 0;
}
