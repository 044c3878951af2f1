// nvcc: -lcuda
// Fills the device, frees, and requests memory in every other way: memory in a cache must not make
// any of these requests fail. Without the library all of them succeed. Needs the whole device.
#include "check.h"

constexpr size_t MIB = 1 << 20, GIB = 1 << 30;

size_t free_bytes() {
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    return free;
}
size_t percent_of(size_t bytes, int percent) { return bytes / 100 * percent & ~(2 * MIB - 1); }

// Fills all but 600 MiB with blocks of mixed sizes, touches each, and frees them all.
void fill_and_free(size_t at_start) {
    std::vector<uint32_t *> blocks;
    const size_t sizes[] = {GIB, 300 * MIB, 3 * MIB, 18 * MIB, 2 * GIB, 700 * 1024};
    size_t left = at_start - 600 * MIB;
    for (int i = 0; left > 3 * GIB; i++) {
        size_t bytes = sizes[i % 6];
        blocks.push_back(device_alloc(bytes));
        set_word<<<1, 1>>>(blocks.back(), i);
        left -= bytes;
    }
    while (left >= 200 * MIB) {
        blocks.push_back(device_alloc(200 * MIB));
        left -= 200 * MIB;
    }
    for (auto *block : blocks) CHECK(cudaFree(block));
}

const char *said(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorName(error);
}

// A module whose global variable takes `bytes` of device memory.
CUresult load_module(size_t bytes) {
    char text[300];
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_52\n.address_size 64\n.visible .global .align 8 .b8 large[%zu];\n"
             ".visible .entry nothing() { ret; }\n",
             bytes);
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, text);
    if (result == CUDA_SUCCESS) CHECK_DRIVER(cuModuleUnload(module));
    return result;
}

cudaError_t graph_with_memory(size_t bytes) {
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *inside;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMallocAsync(&inside, bytes, stream));
    CHECK(cudaMemsetAsync(inside, 1, bytes, stream));
    CHECK(cudaFreeAsync(inside, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    if (error == cudaSuccess) error = cudaGraphLaunch(exec, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
    return error;
}

CUresult create_physical(size_t bytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS) CHECK_DRIVER(cuMemRelease(handle));
    return result;
}

CUresult create_array(size_t rows) {
    CUDA_ARRAY_DESCRIPTOR description = {};
    description.Width = 32768;
    description.Height = rows;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 4;
    CUarray array;
    CUresult result = cuArrayCreate(&array, &description);
    if (result == CUDA_SUCCESS) CHECK_DRIVER(cuArrayDestroy(array));
    return result;
}

int main() {
    watchdog("oom", 150);
    load_kernels();
    cudaStream_t stream = new_stream();
    void *p, *q;
    // The first uses of a pool, a graph and a module take memory that is never released.
    CHECK(cudaMallocAsync(&p, MIB, stream));
    CHECK(cudaFreeAsync(p, stream));
    CHECK(graph_with_memory(MIB));
    CHECK_DRIVER(load_module(1024));
    CHECK(cudaDeviceSynchronize());
    size_t at_start = free_bytes();

    fill_and_free(at_start);
    CHECK(cudaDeviceSynchronize());
    size_t after = free_bytes();
    printf("free again after all is freed: %s\n", after + 64 * MIB >= at_start ? "yes" : "FAIL, no");

    cudaError_t error = cudaMalloc(&p, percent_of(at_start, 90));
    printf("one block of 90 %%: %s\n", said(error));
    if (error == cudaSuccess) {
        size_t now = free_bytes();
        printf("free memory shrinks by it: %s\n", now < at_start - percent_of(at_start, 89) ? "yes" : "FAIL, no");
        printf("two such blocks: %s\n", said(cudaMalloc(&q, percent_of(at_start, 90))));
        CHECK(cudaFree(p));
    }
    fill_and_free(at_start);
    error = cudaMallocAsync(&p, percent_of(at_start, 80), stream);
    if (error == cudaSuccess) CHECK(cudaFreeAsync(p, stream));
    printf("cudaMallocAsync of 80 %%: %s\n", said(error));
    CHECK(cudaDeviceSynchronize());
    fill_and_free(at_start);
    printf("module with a variable of 1 GiB: %d\n", load_module(GIB));
    fill_and_free(at_start);
    printf("graph with a memory node of 60 %%: %s\n", said(graph_with_memory(percent_of(at_start, 60))));
    fill_and_free(at_start);
    printf("physical memory of 80 %%: %d\n", create_physical(percent_of(at_start, 80)));
    fill_and_free(at_start);
    printf("array of 4 GiB: %d\n", create_array(8192));

    // Keeps the device full: every kind of request fails with its own code, and nothing else
    // breaks.
    std::vector<void *> blocks;
    for (size_t bytes : {GIB, 64 * MIB, 2 * MIB})
        while (cudaMalloc(&p, bytes) == cudaSuccess) blocks.push_back(p);
    cudaGetLastError();
    printf("full: cudaMalloc %s", said(cudaMalloc(&q, 256 * MIB)));
    printf(", cudaMallocAsync %s", said(cudaMallocAsync(&q, 256 * MIB, stream)));
    printf(", cuMemCreate %d", create_physical(256 * MIB));
    printf(", 2^60 %s\n", said(cudaMalloc(&q, (size_t)1 << 60)));
    CHECK(cudaDeviceSynchronize());
    for (void *block : blocks) CHECK(cudaFree(block));
    CHECK(cudaMalloc(&p, percent_of(at_start, 85)));
    CHECK(cudaFree(p));
    CHECK(cudaDeviceSynchronize());
    printf("free again at the end: %s\n", free_bytes() + 64 * MIB >= at_start ? "yes" : "FAIL, no");
    return 0;
}
