// PyTorch's own caching allocator, called as the pairs benchmark calls the driver: prints `name value unit` lines.
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

using namespace c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;

template <class Round>
double median_ns(int per_round, Round round) {
    std::vector<double> means;
    round();
    for (int i = 0; i < 31; i++) {
        auto start = Clock::now();
        round();
        means.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / per_round);
    }
    std::sort(means.begin(), means.end());
    return means[means.size() / 2];
}

int main() {
    init(1);
    const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"pair_64KiB", 64 << 10}, {"pair_2MiB", 2 << 20}, {"pair_32MiB", 32 << 20}};
    for (auto &size : sizes)
        printf("%s %.1f ns\n", size.name, median_ns(10000, [&] {
                   for (int i = 0; i < 10000; i++) raw_delete(raw_alloc(size.bytes));
               }));
    // Each thread uses a different size, and measures itself.
    for (int count : {2, 8, 16}) {
        const int pairs = 4000;
        std::vector<double> means;
        for (int round = 0; round < 11; round++) {
            std::atomic<int> ready{0};
            std::atomic<bool> go{false};
            std::vector<double> own(count);
            std::vector<std::thread> threads;
            for (int i = 0; i < count; i++)
                threads.emplace_back([&, i] {
                    size_t bytes = (64 << 10) + 4096 * i;
                    ready++;
                    while (!go) {
                    }
                    auto start = Clock::now();
                    for (int j = 0; j < pairs; j++) raw_delete(raw_alloc(bytes));
                    own[i] = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / pairs;
                });
            while (ready < count) {
            }
            go = true;
            for (auto &thread : threads) thread.join();
            double sum = 0;
            for (double mean : own) sum += mean;
            means.push_back(sum / count);
        }
        std::sort(means.begin(), means.end());
        printf("pair_64KiB_%d_threads %.1f ns\n", count, means[means.size() / 2]);
    }
}
