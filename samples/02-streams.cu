// Two streams and no bookkeeping: a free orders everything, with and without the library.
//
//   nvcc -o 02-streams 02-streams.cu
//   LD_PRELOAD=/path/to/libcachealloc.so ./02-streams
//
// A long kernel on one stream still writes `scratch` when the program frees it. The next block, used at once on
// another stream, may be the same memory: cudaFree promises that the kernel has ended for every later piece of work,
// and the library keeps that promise on the device instead of making the host wait.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t error = (call);                                          \
        if (error != cudaSuccess) {                                          \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));   \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

__global__ void write_slowly(int *data, size_t count, int value, int turns) {
    for (int turn = 0; turn < turns; turn++)
        for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
            ((volatile int *)data)[i] = value + turn;
}

int main() {
    const size_t count = 1 << 20, bytes = count * sizeof(int);
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    std::vector<int> host(count);
    int wrong = 0, same = 0;
    for (int round = 0; round < 50; round++) {
        int *scratch, *result;
        CHECK(cudaMalloc(&scratch, bytes));
        write_slowly<<<8, 256, 0, first>>>(scratch, count, -1000, 20);
        CHECK(cudaFree(scratch));

        CHECK(cudaMalloc(&result, bytes));
        same += result == scratch;
        write_slowly<<<64, 256, 0, second>>>(result, count, round, 1);
        CHECK(cudaMemcpyAsync(host.data(), result, bytes, cudaMemcpyDeviceToHost, second));
        CHECK(cudaStreamSynchronize(second));
        for (size_t i = 0; i < count; i++) wrong += host[i] != round;
        CHECK(cudaFree(result));
    }
    printf("50 rounds on two streams: %s (the same address came back %s)\n", wrong ? "WRONG" : "ok", same ? "at times" : "never");
    return wrong != 0;
}
