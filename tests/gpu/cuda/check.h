// Shared by the GPU test programs: checked calls, kernels that write late, checks of contents, a
// watchdog.
//
// A program prints one line per case, and never a time or an address: its output must be the same
// with and without the library. Lines that begin with `time:` may differ; the comparison drops
// them.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

constexpr uint32_t A = 0xa5a5a5a5, B = 0x5b5b5b5b;  // each also a byte pattern, for memset

inline void check_runtime(cudaError_t error, const char *call, const char *file, int line) {
    if (error == cudaSuccess) return;
    printf("FAIL %s:%d: %s: %s\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, call, cudaGetErrorName(error));
    fflush(stdout);
    _exit(1);
}
#define CHECK(call) check_runtime((call), #call, __FILE__, __LINE__)

inline void check_driver(CUresult result, const char *call, const char *file, int line) {
    if (result == CUDA_SUCCESS) return;
    printf("FAIL %s:%d: %s: CUDA error %d\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, call, (int)result);
    fflush(stdout);
    _exit(1);
}
#define CHECK_DRIVER(call) check_driver((call), #call, __FILE__, __LINE__)

// Whether the comparison runs this process under the library, which makes a few promises that the
// driver does not.
inline bool under_library() { return getenv("GPU_TEST_UNDER_LIBRARY") != nullptr; }

// ---- a hang is a failure ----

inline char watched[160];
inline void bite(int) {
    static const char text[] = ": FAIL, it hangs\n";
    (void)!write(1, watched, strlen(watched));
    (void)!write(1, text, sizeof text - 1);
    _exit(3);
}
inline void watchdog(const char *name, unsigned seconds) {
    snprintf(watched, sizeof watched, "%s", name);
    fflush(stdout);
    signal(SIGALRM, bite);
    alarm(seconds);
}

// ---- kernels ----

__device__ inline unsigned long long now_ns() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
// Lets a dependent kernel launched with programmatic serialisation start early.
__device__ inline void allow_early_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_ns(unsigned long long ns) {
    for (unsigned long long start = now_ns(); now_ns() - start < ns;) {
    }
}

// Writes `value` into `words`, but only after `ns`: work that is still running when the program
// frees.
__global__ void fill(volatile uint32_t *words, size_t count, uint32_t value, unsigned long long ns) {
    allow_early_start();
    wait_ns(ns);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) words[i] = value;
}

// Counts the words that are not `value`.
__global__ void count_wrong(const volatile uint32_t *words, size_t count, uint32_t value, unsigned long long *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        if (words[i] != value) atomicAdd(wrong, 1ull);
}

__global__ void delay(unsigned long long ns) { wait_ns(ns); }

// Spins until `*flag` is not zero, for persistent kernels. Ends after 20 s, so that no test holds
// the GPU.
__global__ void spin_until(volatile uint32_t *flag) {
    for (unsigned long long start = now_ns(); !*flag && now_ns() - start < 20000000000ull;) {
    }
}
__global__ void set_word(volatile uint32_t *word, uint32_t value) {
    *word = value;
    __threadfence_system();
}

// Loads the kernels now: with lazy loading, a first launch may wait for the device and hide what is
// tested.
inline void load_kernels() {
    uint32_t *words;
    unsigned long long *wrong;
    CHECK(cudaMalloc(&words, 256));
    CHECK(cudaMalloc(&wrong, 256));
    CHECK(cudaMemset(wrong, 0, 256));
    fill<<<1, 1>>>(words, 1, 1, 0);
    count_wrong<<<1, 1>>>(words, 1, 1, wrong);
    delay<<<1, 1>>>(0);
    spin_until<<<1, 1>>>(words);
    set_word<<<1, 1>>>(words, 0);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(words));
    CHECK(cudaFree(wrong));
}

// ---- host-side helpers ----

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

template <class T = uint32_t>
T *device_alloc(size_t bytes) {
    void *address;
    CHECK(cudaMalloc(&address, bytes));
    return static_cast<T *>(address);
}

template <class T = uint32_t>
T *pinned_alloc(size_t bytes) {
    void *address;
    CHECK(cudaMallocHost(&address, bytes));
    return static_cast<T *>(address);
}

inline void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Whether all `bytes` at the device address hold `value`; synchronises.
inline bool holds(const uint32_t *words, size_t bytes, uint32_t value) {
    std::vector<uint32_t> host(bytes / 4);
    CHECK(cudaMemcpy(host.data(), words, bytes, cudaMemcpyDeviceToHost));
    for (uint32_t word : host)
        if (word != value) return false;
    return true;
}
