// nvcc: -lcuda
// Queries about memory, and calls that fail: codes, the state of the outputs, addresses relative to their block. The
// output is the same with and without the library; tests/programs/answers makes more queries.
#include "check.h"

constexpr uint64_t UNTOUCHED = 0xeeeeeeeeeeeeeeee;
constexpr size_t MIB = 1 << 20;

void show(uint64_t value, uint64_t base, size_t bytes) {
    if (value == UNTOUCHED) printf(" untouched");
    else if (value && value >= base && value - base <= bytes) printf(" +%llu", (unsigned long long)(value - base));
    else if (value >> 32 == UNTOUCHED >> 32) printf(" int %d", (int)value);
    else printf(" %llu", (unsigned long long)value);
}

// Handles and numbers of the driver's own choice are only shown as present or absent; a mapping may
// be larger than the block.
void describe(const char *name, CUdeviceptr at, CUdeviceptr base, size_t bytes) {
    printf("%s:", name);
    for (int kind = 0; kind <= 21; kind++) {
        if (kind == 5) continue;  // P2P tokens are no more
        uint64_t value = UNTOUCHED;
        CUresult code = cuPointerGetAttribute(&value, (CUpointer_attribute)kind, at);
        printf(" %d:%d", kind, code);
        bool opaque = kind == 1 || kind == 7 || kind == 17 || kind == 20;
        if (value == UNTOUCHED || !value || !(opaque || kind == 18 || kind == 19)) show(value, base, bytes);
        else printf(" %s", opaque ? "some" : (kind == 18 ? value >= bytes : value <= base) ? "covers" : "FAIL");
    }
    CUpointer_attribute kinds[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    uint64_t values[4] = {UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
    void *places[4] = {&values[0], &values[1], &values[2], &values[3]};
    printf("; array %d:", cuPointerGetAttributes(4, kinds, places, at));
    for (uint64_t value : values) show(value, base, bytes);
    CUdeviceptr start = UNTOUCHED;
    size_t length = UNTOUCHED;
    printf("; range %d", cuMemGetAddressRange(&start, &length, at));
    show(start, base, bytes), show(length, 0, 0);
    printf(" nulls %d\n", cuMemGetAddressRange(nullptr, nullptr, at));
}

int sync_memops(CUdeviceptr at) {
    int value = -1;
    CUresult code = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    return code ? -(int)code : value;
}

void test_sync_memops(size_t bytes) {
    CUdeviceptr a, b, next;
    CHECK_DRIVER(cuMemAlloc(&a, bytes));
    CHECK_DRIVER(cuMemAlloc(&b, bytes));
    unsigned on = 1;
    CUresult set = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b + 8);
    printf("sync %zu: set %d, neighbour %d, own %d", bytes, set, sync_memops(a), sync_memops(b));
    CHECK_DRIVER(cuMemFree(b));
    printf(", freed %d", sync_memops(b));
    CHECK_DRIVER(cuMemAlloc(&next, bytes));
    printf(", next %d\n", sync_memops(next));
    CHECK_DRIVER(cuMemFree(next));
    CHECK_DRIVER(cuMemFree(a));
}

void test_calls(CUstream stream) {
    const size_t sizes[] = {0, (size_t)1 << 48, (size_t)1 << 60, ~(size_t)0 - 511, ~(size_t)0};
    for (size_t bytes : sizes) {
        CUdeviceptr plain = UNTOUCHED, ordered = UNTOUCHED;
        printf("size %zx: %d", bytes, cuMemAlloc(&plain, bytes));
        show(plain, 0, 0);
        printf(", async %d", cuMemAllocAsync(&ordered, bytes, stream));
        show(ordered, 0, 0);
        printf("\n");
    }
    for (size_t bytes : {(size_t)512, MIB, 33 * MIB}) {
        CUdeviceptr block;
        CHECK_DRIVER(cuMemAlloc(&block, bytes));
        printf("frees of %zu: inside %d %d", bytes, cuMemFree(block + 1), cuMemFreeAsync(block + bytes / 2, stream));
        int first = cuMemFree(block), second = cuMemFree(block), third = cuMemFreeAsync(block, stream);
        printf(", %d %d %d\n", first, second, third);
    }
    size_t free_bytes = UNTOUCHED, total = UNTOUCHED;
    printf("wild frees %d %d, info %d %d %d\n", cuMemFree(0), cuMemFree(0x12345000), cuMemGetInfo(nullptr, nullptr),
           cuMemGetInfo(&free_bytes, nullptr), cuMemGetInfo(nullptr, &total));
}

void test_without_context(CUstream stream) {
    CUcontext context;
    CUdeviceptr block, ordered, pointer = UNTOUCHED, start = UNTOUCHED;
    size_t length = UNTOUCHED;
    CHECK_DRIVER(cuMemAlloc(&block, 4096));
    CHECK_DRIVER(cuMemAllocAsync(&ordered, 4096, stream));
    CHECK_DRIVER(cuCtxPopCurrent(&context));
    printf("no context: alloc %d", cuMemAlloc(&pointer, 4096));
    show(pointer, 0, 0);
    printf(", range %d", cuMemGetAddressRange(&start, &length, block));
    show(start, block, 4096), show(length, 0, 0);
    int wrong = cuMemFree(block + 1), right = cuMemFree(block), again = cuMemFree(block), async = cuMemFreeAsync(ordered, 0);
    printf(", frees %d %d %d, async %d\n", wrong, right, again, async);
    CHECK_DRIVER(cuCtxPushCurrent(context));
    printf("back: async free %d\n", cuMemFreeAsync(ordered, stream));
}

int main() {
    watchdog("answers", 100);
    load_kernels();
    cudaStream_t stream = new_stream();
    CUdeviceptr small, large, ordered, freed;
    CHECK_DRIVER(cuMemAlloc(&small, 1000));
    CHECK_DRIVER(cuMemAlloc(&large, 5 * MIB));
    CHECK_DRIVER(cuMemAlloc(&freed, 5 * MIB));
    CHECK_DRIVER(cuMemAllocAsync(&ordered, 70000, stream));
    CHECK_DRIVER(cuMemFree(freed));
    describe("small", small, small, 1000);
    describe("inside", small + 999, small, 1000);
    describe("past the end", small + 1000, small, 1000);
    describe("large", large + MIB, large, 5 * MIB);
    describe("stream-ordered", ordered + 7, ordered, 70000);
    describe("freed", freed + 512, freed, 5 * MIB);
    describe("wild", 0x12345000, 0x12345000, 0);
    for (size_t bytes : {(size_t)512, (size_t)1000, MIB, 3 * MIB, 33 * MIB}) test_sync_memops(bytes);
    int file = -7;
    CUresult code = cuMemGetHandleForAddressRange(&file, freed, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    printf("handle of freed memory: %d, output %d\n", code, file);
    test_calls(stream);
    test_without_context(stream);
    CHECK(cudaStreamSynchronize(stream));
    CHECK_DRIVER(cuMemFree(small));
    CHECK_DRIVER(cuMemFree(large));
    CHECK_DRIVER(cuMemFreeAsync(ordered, stream));
    CHECK(cudaDeviceSynchronize());
    return 0;
}
