// Prints the cost of an NVTX range, pushed and popped: nanoseconds for a pair of calls, alone and
// three deep, and for an allocation and its free inside. Without the library no tool listens, and
// the calls end in NVTX's own header.
//
//   nvtx                                without the library
//   cachealloc run -- nvtx              under the library, which records nothing
//   cachealloc run --record -- nvtx     under the library, which records the ranges
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <functional>

#include "../cuda/check.h"

using Clock = std::chrono::steady_clock;
constexpr int CALLS = 10000, ROUNDS = 31;

double median_ns(const std::function<void()> &call) {
    std::vector<double> times;
    for (int round = 0; round < ROUNDS; round++) {
        auto start = Clock::now();
        for (int i = 0; i < CALLS; i++) call();
        times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / CALLS);
    }
    std::sort(times.begin(), times.end());
    return times[ROUNDS / 2];
}

void pair() {
    void *memory;
    CHECK(cudaMalloc(&memory, 64 << 10));
    CHECK(cudaFree(memory));
}

int main() {
    watchdog("nvtx", 60);
    pair();
    printf("push_pop %.1f ns\n", median_ns([] {
        nvtxRangePushA("step");
        nvtxRangePop();
    }));
    nvtxRangePushA("run");
    nvtxRangePushA("epoch");
    printf("push_pop_three_deep %.1f ns\n", median_ns([] {
        nvtxRangePushA("step");
        nvtxRangePop();
    }));
    // Without the library a pair takes tens of microseconds, which would hide it.
    if (getenv("LD_PRELOAD")) {
        printf("alloc_free %.1f ns\n", median_ns(pair));
        printf("alloc_free_in_new_range %.1f ns\n", median_ns([] {
            nvtxRangePushA("step");
            pair();
            nvtxRangePop();
        }));
    }
    return 0;
}
