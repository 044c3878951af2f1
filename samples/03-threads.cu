// Eight threads, each with a separate stream, allocate, work and free, half of them with cudaMallocAsync.
//
//   nvcc -o 03-threads 03-threads.cu -Xcompiler -pthread
//   LD_PRELOAD=/path/to/libcachealloc.so ./03-threads
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include <chrono>
#include <thread>
#include <vector>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t error = (call);                                          \
        if (error != cudaSuccess) {                                          \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));   \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

__global__ void fill(int *data, size_t count, int value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) data[i] = value;
}
__global__ void count_wrong(const int *data, size_t count, int value, int *wrong) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (data[i] != value) atomicAdd(wrong, 1);
}

void work(int thread, int rounds, int *wrong) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < rounds; round++) {
        size_t count = 1000 + 40000 * (size_t)(round % 7);
        int value = thread * rounds + round, *data;
        bool async = thread % 2;
        if (async)
            CHECK(cudaMallocAsync(&data, count * sizeof(int), stream));
        else
            CHECK(cudaMalloc(&data, count * sizeof(int)));
        fill<<<8, 256, 0, stream>>>(data, count, value);
        count_wrong<<<8, 256, 0, stream>>>(data, count, value, wrong);
        if (async)
            CHECK(cudaFreeAsync(data, stream));
        else
            CHECK(cudaFree(data));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    const int threads = 8, rounds = 1000;
    int *wrong, total;
    CHECK(cudaMalloc(&wrong, sizeof(int)));
    CHECK(cudaMemset(wrong, 0, sizeof(int)));
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; i++) workers.emplace_back(work, i, rounds, wrong);
    for (auto &worker : workers) worker.join();
    CHECK(cudaMemcpy(&total, wrong, sizeof(int), cudaMemcpyDeviceToHost));
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    CHECK(cudaFree(wrong));
    printf("%d threads, %d rounds each: %s\n", threads, rounds, total ? "WRONG" : "ok");
    fprintf(stderr, "%.0f ms\n", ms);
    return total != 0;
}
