// Thrust allocates a temporary with cudaMalloc in nearly every call and frees it at its end; device
// vectors are created and destroyed. Results are compared with the host's.
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "check.h"

bool equal(const thrust::device_vector<uint32_t> &device, const std::vector<uint32_t> &host) {
    std::vector<uint32_t> copy(device.size());
    thrust::copy(device.begin(), device.end(), copy.begin());
    return copy == host;
}

int main() {
    watchdog("thrust_temporaries", 100);
    load_kernels();
    std::mt19937 random(7);
    int rounds = 60, wrong[5] = {};
    cudaStream_t stream = new_stream();
    for (int round = 0; round < rounds; round++) {
        size_t count = 1000 + random() % 300000;
        std::vector<uint32_t> host(count);
        for (auto &x : host) x = random() % 50000;
        thrust::device_vector<uint32_t> keys(host.begin(), host.end()), values(count), sums(count);

        // A reduction and a scan of the unsorted keys.
        wrong[0] += thrust::reduce(keys.begin(), keys.end(), 0u) != std::accumulate(host.begin(), host.end(), 0u);
        std::vector<uint32_t> host_sums(count);
        std::partial_sum(host.begin(), host.end(), host_sums.begin());
        thrust::inclusive_scan(keys.begin(), keys.end(), sums.begin());
        wrong[1] += !equal(sums, host_sums);

        // Sorting keys with values, on a stream every other round.
        thrust::sequence(values.begin(), values.end());
        if (round % 2)
            thrust::stable_sort_by_key(thrust::cuda::par.on(stream), keys.begin(), keys.end(), values.begin());
        else
            thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin());
        std::vector<uint32_t> order(count), sorted(host);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return host[a] < host[b]; });
        std::sort(sorted.begin(), sorted.end());
        wrong[2] += !equal(keys, sorted) || !equal(values, order);

        // Distinct keys, and how often each occurs.
        thrust::device_vector<uint32_t> ones(count, 1), distinct(count), counts(count);
        auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), ones.begin(), distinct.begin(), counts.begin());
        distinct.resize(ends.first - distinct.begin());
        counts.resize(ends.second - counts.begin());
        keys.erase(thrust::unique(keys.begin(), keys.end()), keys.end());
        sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
        wrong[3] += !equal(keys, sorted) || !equal(distinct, sorted);
        wrong[4] += thrust::reduce(counts.begin(), counts.end(), 0u) != count;
    }
    const char *names[] = {"reduce", "scan", "sort by key", "unique", "counts"};
    int failed = 0;
    for (int i = 0; i < 5; i++) {
        printf("%s: %d of %d rounds wrong %s\n", names[i], wrong[i], rounds, wrong[i] ? "FAIL" : "ok");
        failed += wrong[i];
    }
    return failed != 0;
}
