// What a report must find: weights that stay to the end, a leak in each request, and a burst of
// temporaries.
#include <cstdio>

#include "../cuda/check.h"

__global__ void fill(float *words, size_t count, float value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] = value;
}

static __attribute__((noinline)) float *take(size_t bytes) {
    float *block;
    CHECK(cudaMalloc(&block, bytes));
    fill<<<64, 256>>>(block, bytes / sizeof(float), 1.0f);
    return block;
}

float *answers[20];

static __attribute__((noinline)) void answer_request(int number) {
    answers[number] = take(6 << 20); // planted: leak
}

static __attribute__((noinline)) void smooth() {
    for (int i = 0; i < 500; i++) {
        float *block = take(256 << 10); // planted: temporaries
        CHECK(cudaFree(block));
    }
}

int main() {
    float *weights = take(512 << 20); // planted: weights
    for (int i = 0; i < 20; i++) answer_request(i);
    smooth();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(weights));
    puts("kept: ok");
}
