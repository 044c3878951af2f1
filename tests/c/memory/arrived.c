// A stream-ordered request finds memory that was freed while the driver was asked for more. A
// callback runs before the program gets that memory, and queries which work is complete.
#include "../check.h"
#include "../../../include/cachealloc.h"

#define BYTES (40 << 20)
#define SMALL_COUNT 8

static int (*cuMemAllocAsync)(Pointer *, size_t, void *);
static int (*cuMemFreeAsync)(Pointer, void *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);
static int (*cuMemsetD8Async)(Pointer, unsigned char, size_t, void *);

static void *stream;
static Pointer block, other;

// The request misses: before it asks the driver, the library asks which events are complete.
static void ask_what_is_complete(size_t bytes) {
    Pointer missing;
    OK(cuStreamSynchronize(stream));
    OK(cuMemAlloc(&missing, bytes));
}

static void use_and_free(Pointer memory) {
    OK(cuMemsetD8Async(memory, 1, 512, stream));
    OK(cuMemFreeAsync(memory, stream));
}

static void frees(void *data, int device, size_t bytes) {
    use_and_free(block);
    use_and_free(other);
}

static void asks(void *data, int device, size_t bytes, uint64_t address) { ask_what_is_complete(64 << 20); }

int main(void) {
    Pointer again, small[SMALL_COUNT];
    cachealloc_hook hook = {.size = sizeof hook, .alloc_preprocess = frees, .alloc_postprocess = asks};
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemAllocAsync = dlsym(driver, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(driver, "cuMemFreeAsync");
    *(void **)&cuStreamCreate = dlsym(driver, "cuStreamCreate");
    *(void **)&cuMemsetD8Async = dlsym(driver, "cuMemsetD8Async");
    *(void **)&cuStreamSynchronize = dlsym(driver, "cuStreamSynchronize");
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAllocAsync(&block, BYTES, stream));
    OK(cuMemAllocAsync(&other, 512, stream));
    for (int i = 0; i < SMALL_COUNT; i++)
        OK(cuMemAllocAsync(&small[i], 512, stream));
    OK(cachealloc_hook_push(&hook));
    OK(cuMemAllocAsync(&again, BYTES, stream));
    OK(cachealloc_hook_pop(&hook));
    CHECK(again == block);
    // Each takes an event; no two may take the same one.
    use_and_free(again);
    for (int i = 0; i < SMALL_COUNT; i++)
        use_and_free(small[i]);
    ask_what_is_complete(128 << 20);
    ask_what_is_complete(256 << 20);
    puts("done");
    return 0;
}
