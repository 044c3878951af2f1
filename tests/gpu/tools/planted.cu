// Mistakes planted for the tools to find, and one program without any: planted
// clean|overrun|race|unwritten|leak|null.
#include "../cuda/check.h"

__global__ void write_past_the_end(uint32_t *words, int count) { words[threadIdx.x < 1 ? count : 0] = 7; }
__global__ void race_in_shared_memory(uint32_t *out) {
    __shared__ uint32_t word;
    word = threadIdx.x;
    *out = word;
}
__global__ void sum_unwritten(const uint32_t *words, int count, uint32_t *out) {
    uint32_t sum = 0;
    for (int i = 0; i < count; i++) sum += words[i];
    *out = sum;
}
__global__ void write_to_null(uint32_t *words) { *words = 7; }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "clean";
    constexpr int COUNT = 1000;  // not a multiple of 128 words: the end of the block is not the end of what we round to
    watchdog(what, 100);
    cudaStream_t stream = new_stream();
    uint32_t *neighbour = device_alloc(4 * COUNT), *words = device_alloc(4 * COUNT), *out = device_alloc(4);
    uint32_t *behind = device_alloc(4 * COUNT);
    for (int i = 0; i < 5; i++) {  // memory that was used before
        uint32_t *temporary = device_alloc(4 * COUNT << i);
        fill<<<4, 64, 0, stream>>>(temporary, COUNT << i, A, 0);
        CHECK(cudaFree(temporary));
    }
    CHECK(cudaMemset(out, 0, 4));
    if (strcmp(what, "unwritten")) fill<<<4, 64, 0, stream>>>(words, COUNT, B, 0);
    fill<<<4, 64, 0, stream>>>(neighbour, COUNT, A, 0);
    fill<<<4, 64, 0, stream>>>(behind, COUNT, A, 0);
    CHECK(cudaStreamSynchronize(stream));
    if (!strcmp(what, "overrun")) write_past_the_end<<<1, 32, 0, stream>>>(words, COUNT);
    if (!strcmp(what, "race")) race_in_shared_memory<<<1, 64, 0, stream>>>(out);
    if (!strcmp(what, "unwritten")) sum_unwritten<<<1, 1, 0, stream>>>(words, COUNT, out);
    if (!strcmp(what, "null")) write_to_null<<<1, 1, 0, stream>>>(nullptr);
    cudaError_t error = cudaDeviceSynchronize();
    printf("%s: %s\n", what, cudaGetErrorName(error));
    if (error == cudaSuccess) {
        printf("the neighbours are %s\n", holds(neighbour, 4 * COUNT, A) && holds(behind, 4 * COUNT, A) ? "as they were" : "overwritten");
        if (strcmp(what, "leak"))
            for (void *block : {neighbour, words, out, behind}) CHECK(cudaFree(block));
    }
    cudaDeviceReset();
    return error != cudaSuccess;
}
