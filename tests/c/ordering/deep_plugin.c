// A plugin that submits work to the driver. With -DLINKED it is linked against the driver;
// otherwise it looks the functions up. Opened with deep binding, it bypasses the preloaded library
// either way.
#include "../check.h"

typedef int Fill(Pointer, unsigned char, size_t, void *);
typedef int CopyOut(void *, Pointer, size_t, void *);
typedef int Free(Pointer);

#ifdef LINKED
Fill cuMemsetD8Async;
CopyOut cuMemcpyDtoHAsync_v2;
Free cuMemFree_v2;
#define FIND(type, name) type *function = name
#else
#define FIND(type, name) \
    type *function = (type *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), #name); \
    CHECK(function)
#endif

void fill(Pointer block, size_t bytes, void *stream) {
    FIND(Fill, cuMemsetD8Async);
    OK(function(block, 7, bytes, stream));
}

void copy_out(void *host, Pointer block, size_t bytes, void *stream) {
    FIND(CopyOut, cuMemcpyDtoHAsync_v2);
    OK(function(host, block, bytes, stream));
}

int give_back(Pointer block) {
    FIND(Free, cuMemFree_v2);
    return function(block);
}

// In a separate namespace the plugin finds a driver that was not started.
int work_alone(int rounds) {
    start_cuda();
    loop(rounds);
    Pointer block;
    OK(cuMemAlloc(&block, 1 << 20));
    fill(block, 1 << 20, NULL);
    OK(cuMemFree(block));
    return 0;
}
