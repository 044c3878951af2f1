// nvcc: -lcuda
// The cost of an allocation and its free, through the driver API: prints `name value unit` lines.
//
//   pairs           all, without the library or under it (preloaded)
//   pairs async     the same with cuMemAllocAsync and cuMemFreeAsync, on a pool that keeps its memory
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "../cuda/check.h"

using Clock = std::chrono::steady_clock;
double ns_since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

__global__ void nothing(void *) {}

struct Way {  // how to allocate and free
    const char *prefix;
    std::function<CUdeviceptr(size_t, CUstream)> allocate;
    std::function<void(CUdeviceptr, CUstream)> free;
};

// Median over rounds of the mean nanoseconds of a call in a round; takes at most about `budget_ms`.
struct Figure {
    double median, least;
};
Figure measure(double budget_ms, int per_round, const std::function<void()> &round, const std::function<void()> &after = [] {}) {
    std::vector<double> means;
    auto begin = Clock::now();
    while (means.size() < 11 || (ns_since(begin) < budget_ms * 1e6 && means.size() < 401)) {
        auto start = Clock::now();
        round();
        means.push_back(ns_since(start) / per_round);
        after();
        if (ns_since(begin) > budget_ms * 1e6 * 4) break;
    }
    std::sort(means.begin(), means.end());
    return {means[means.size() / 2], means[0]};
}
void print(const Way &way, const char *name, double value) {
    printf("%s%s %.1f ns\n", way.prefix, name, value);
    fflush(stdout);
}
void settle() { CHECK(cudaDeviceSynchronize()); }

void pairs_without_work(const Way &way, cudaStream_t stream, const char *suffix) {
    const struct {
        const char *name;
        size_t bytes;
        int per_round;
    } sizes[] = {{"pair_64KiB", 64 << 10, 200}, {"pair_2MiB", 2 << 20, 50}, {"pair_32MiB", 32 << 20, 20}};
    for (auto &size : sizes) {
        auto round = [&] {
            for (int i = 0; i < size.per_round; i++) way.free(way.allocate(size.bytes, (CUstream)stream), (CUstream)stream);
        };
        round();
        settle();
        char name[80];
        snprintf(name, sizeof name, "%s%s", size.name, suffix);
        print(way, name, measure(300, size.per_round, round).median);
        settle();
    }
}

// Each thread uses a different size and measures itself, so its start and end are excluded. Its
// first pairs are included. Where all threads start at once, these take as long as some hundred
// later ones, so there are many pairs.
void pairs_from_threads(const Way &way, int count, bool launches) {
    const int pairs = launches ? 300 : 40000;
    std::vector<cudaStream_t> streams;
    for (int i = 0; i < count; i++) streams.push_back(new_stream());
    std::vector<double> means;
    auto begin = Clock::now();
    while (means.size() < 5 || (ns_since(begin) < 1e9 && means.size() < 401)) {
        std::atomic<int> ready{0};
        std::atomic<bool> go{false};
        std::vector<double> own(count);
        std::vector<std::thread> threads;
        for (int i = 0; i < count; i++)
            threads.emplace_back([&, i] {
                CHECK(cudaSetDevice(0));
                size_t bytes = (64 << 10) + 4096 * i;
                auto stream = (CUstream)streams[i];
                ready++;
                while (!go) {
                }
                auto start = Clock::now();
                for (int j = 0; j < pairs; j++) {
                    auto address = way.allocate(bytes, stream);
                    if (launches) nothing<<<1, 1, 0, stream>>>((void *)address);
                    way.free(address, stream);
                }
                own[i] = ns_since(start) / pairs;
            });
        while (ready < count) {
        }
        go = true;
        for (auto &thread : threads) thread.join();
        double sum = 0;
        for (double mean : own) sum += mean;
        means.push_back(sum / count);
        settle();
        if (ns_since(begin) > 6e9) break;
    }
    std::sort(means.begin(), means.end());
    char name[80];
    snprintf(name, sizeof name, "%s_64KiB_%d_threads", launches ? "launch_and_pair" : "pair", count);
    print(way, name, means[means.size() / 2]);
    for (auto stream : streams) CHECK(cudaStreamDestroy(stream));
}

// Launches are counted in rounds too short to fill the launch queue. The launch alone and the
// launch with a pair around it alternate, so that a drift of the machine affects both.
void pairs_with_a_launch(const Way &way, cudaStream_t stream, const char *suffix) {
    const int launches = 200;
    std::vector<double> alone, with;
    auto kept = way.allocate(2 << 20, (CUstream)stream);
    for (int round = 0; round < 101; round++) {
        settle();
        auto start = Clock::now();
        for (int i = 0; i < launches; i++) nothing<<<1, 1, 0, stream>>>((void *)kept);
        alone.push_back(ns_since(start) / launches);
        settle();
        start = Clock::now();
        for (int i = 0; i < launches; i++) {
            auto address = way.allocate(2 << 20, (CUstream)stream);
            nothing<<<1, 1, 0, stream>>>((void *)address);
            way.free(address, (CUstream)stream);
        }
        with.push_back(ns_since(start) / launches);
    }
    settle();
    way.free(kept, (CUstream)stream);
    std::sort(alone.begin(), alone.end());
    std::sort(with.begin(), with.end());
    char name[80];
    snprintf(name, sizeof name, "launch%s", suffix);
    print(way, name, alone[50]);
    snprintf(name, sizeof name, "launch_least%s", suffix);
    print(way, name, alone[0]);
    snprintf(name, sizeof name, "pair_2MiB_around_launch%s", suffix);
    print(way, name, with[50]);
    snprintf(name, sizeof name, "pair_2MiB_minus_launch%s", suffix);
    print(way, name, with[50] - alone[50]);
}

// Returns the driver's own symbol from its symbol table: the result of dlsym if nothing interposes
// the driver.
void *without_hooks(void *driver, const char *name) {
    link_map *map;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map)) return nullptr;
    const ElfW(Sym) *symbols = nullptr;
    const char *strings = nullptr;
    const uint32_t *table = nullptr;
    for (auto *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) strings = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_GNU_HASH) table = (const uint32_t *)entry->d_un.d_ptr;
    }
    if (!symbols || !strings || !table) return nullptr;
    uint32_t hash = 5381, buckets = table[0], first = table[1];
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(size_t) / 4), *chain = bucket + buckets;
    for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && !strcmp(strings + symbols[i].st_name, name)) return (void *)(map->l_addr + symbols[i].st_value);
        if (chain[i - first] & 1) break;
    }
    return nullptr;
}

// Measures what the hook adds to a launch. Short rounds of launches through the program's pointer
// and through the driver's own alternate in one process; the result is the median of the
// differences. Without the library both are the same, which shows the noise.
void hook_of_launches(cudaStream_t stream) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto hooked = (decltype(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel");
    auto bare = (decltype(&cuLaunchKernel))without_hooks(driver, "cuLaunchKernel");
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)nothing));
    if (!hooked || !bare) return;
    void *argument = nullptr, *arguments[] = {&argument};
    // An empty grid is refused at once: the same hook around a shorter call.
    auto round = [&](decltype(&cuLaunchKernel) launch, unsigned grid, int count) {
        settle();
        auto start = Clock::now();
        for (int i = 0; i < count; i++) launch((CUfunction)function, grid, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, nullptr);
        return ns_since(start) / count;
    };
    auto added = [&](const char *name, unsigned grid) {
        std::vector<double> differences;
        for (int i = 0; i < 601; i++) {
            double first = round(i % 2 ? hooked : bare, grid, 100), second = round(i % 2 ? bare : hooked, grid, 100);
            differences.push_back(i % 2 ? first - second : second - first);
        }
        std::sort(differences.begin(), differences.end());
        printf("%s %.1f ns\n", name, differences[differences.size() / 2]);
    };
    added("hook_adds_to_launch", 1);
    added("hook_adds_to_refused_launch", 0);
    uint32_t *pinned = pinned_alloc(4096);
    added("hook_adds_to_launch_pinned_alive", 1);
    added("hook_adds_to_refused_pinned_alive", 0);
    CHECK(cudaFreeHost(pinned));
}

int main(int argc, char **argv) {
    bool async = argc > 1 && !strcmp(argv[1], "async");
    watchdog("pairs", 120);
    CHECK(cudaFree(nullptr));
    nothing<<<1, 1>>>(nullptr);
    settle();
    Way way;
    if (async) {
        CUmemoryPool pool;
        cuuint64_t keep = ~0ull;
        CHECK_DRIVER(cuDeviceGetDefaultMemPool(&pool, 0));
        CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        way = {"async_",
               [](size_t bytes, CUstream stream) {
                   CUdeviceptr address;
                   CHECK_DRIVER(cuMemAllocAsync(&address, bytes, stream));
                   return address;
               },
               [](CUdeviceptr address, CUstream stream) { CHECK_DRIVER(cuMemFreeAsync(address, stream)); }};
    } else {
        way = {"",
               [](size_t bytes, CUstream) {
                   CUdeviceptr address;
                   CHECK_DRIVER(cuMemAlloc(&address, bytes));
                   return address;
               },
               [](CUdeviceptr address, CUstream) { CHECK_DRIVER(cuMemFree(address)); }};
    }
    // One small block stays alive: without the library, freeing the last block in 2 MiB also
    // removes the mapping, every time.
    CUdeviceptr live = way.allocate(64 << 10, (CUstream)cudaStreamLegacy);
    pairs_without_work(way, cudaStreamLegacy, "");  // before any stream exists: without the library, streams make a free slower
    cudaStream_t stream = new_stream();
    pairs_without_work(way, stream, "_1_stream");
    pairs_with_a_launch(way, stream, "");
    if (!async) hook_of_launches(stream);
    for (int count : {2, 8, 16}) pairs_from_threads(way, count, false);
    for (int count : {1, 2, 4, 8}) pairs_from_threads(way, count, true);
    std::vector<cudaStream_t> many;
    for (int i = 0; i < 128; i++) {
        many.push_back(new_stream());
        nothing<<<1, 1, 0, many.back()>>>(nullptr);
    }
    settle();
    pairs_without_work(way, stream, "_128_streams");
    pairs_with_a_launch(way, stream, "_128_streams");
    way.free(live, (CUstream)cudaStreamLegacy);
    return 0;
}
