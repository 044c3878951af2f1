// Eight threads, each with four streams, allocate, launch and free at random, and mix cudaMalloc
// and cudaMallocAsync and their frees. Every block is filled with its own pattern and checked on
// the device before it is freed. The free directly follows the launches, without a synchronization,
// wherever CUDA permits that.
//
//   streams_threads [ITERATIONS]
#include <atomic>
#include <random>

#include "check.h"

constexpr int THREADS = 8, STREAMS = 4;

struct Counts {
    std::atomic<long> plain{0}, async{0}, plain_freed_async{0}, async_freed_plainly{0};
};

// Fills with a tag, may keep the device busy for a while, checks, and (late) fills with another
// tag: the next owner of this block must see neither tag.
void use(uint32_t *words, size_t count, uint32_t tag, unsigned long long ns, cudaStream_t stream, unsigned long long *wrong) {
    int blocks = count > 65536 ? 16 : 2;
    fill<<<blocks, 256, 0, stream>>>(words, count, tag, 0);
    if (ns) delay<<<1, 1, 0, stream>>>(ns);
    count_wrong<<<blocks, 256, 0, stream>>>(words, count, tag, wrong);
    fill<<<blocks, 256, 0, stream>>>(words, count, ~tag, 0);
}

void work(int thread, int iterations, unsigned long long *wrong, Counts &counts) {
    std::mt19937 random(thread + 1);
    cudaStream_t streams[STREAMS + 1];
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(i % 2 ? cudaStreamDefault : cudaStreamNonBlocking);
    streams[STREAMS] = cudaStreamPerThread;
    struct Live {
        uint32_t *words;
        size_t count;
    };
    std::vector<Live> live;  // used on several streams over several iterations
    for (int i = 0; i < iterations; i++) {
        size_t count = (size_t)128 << random() % 13;
        if (random() % 3 == 0) count += 128 * (random() % 64);
        if (random() % 64 == 0) count = (size_t)6 << 20;
        cudaStream_t stream = streams[random() % (STREAMS + 1)];
        uint32_t tag = thread << 24 | i << 4 | random() % 16, *words;
        unsigned long long ns = random() % 4 ? 0 : random() % 40000;
        switch (random() % 5) {
            case 0:
            case 1:  // cudaMalloc, cudaFree with the work still in flight
                words = device_alloc(count * 4);
                use(words, count, tag, ns, stream, wrong);
                CHECK(cudaFree(words));
                counts.plain++;
                break;
            case 2:  // stream-ordered
                CHECK(cudaMallocAsync((void **)&words, count * 4, stream));
                use(words, count, tag, ns, stream, wrong);
                CHECK(cudaFreeAsync(words, stream));
                counts.async++;
                break;
            case 3:  // crossings
                if (random() % 2) {
                    words = device_alloc(count * 4);
                    use(words, count, tag, ns, stream, wrong);
                    CHECK(cudaFreeAsync(words, stream));
                    counts.plain_freed_async++;
                } else {
                    CHECK(cudaMallocAsync((void **)&words, count * 4, stream));
                    use(words, count, tag, ns, stream, wrong);
                    CHECK(cudaStreamSynchronize(stream));  // cudaFree of such a pointer does not wait
                    CHECK(cudaFree(words));
                    counts.async_freed_plainly++;
                }
                break;
            default:  // several live at once, freed in any order
                words = device_alloc(count * 4);
                use(words, count, tag, ns, stream, wrong);
                live.push_back({words, count});
                counts.plain++;
                if (live.size() > 6) {
                    size_t chosen = random() % live.size();
                    CHECK(cudaFree(live[chosen].words));
                    live.erase(live.begin() + chosen);
                }
        }
    }
    for (auto &block : live) CHECK(cudaFree(block.words));
    for (int i = 0; i < STREAMS; i++) CHECK(cudaStreamDestroy(streams[i]));
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 500;
    watchdog("streams_threads", 100);
    load_kernels();
    unsigned long long *wrong = device_alloc<unsigned long long>(256), errors;
    CHECK(cudaMemset(wrong, 0, 256));
    Counts counts;
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++) threads.emplace_back(work, i, iterations, wrong, std::ref(counts));
    for (auto &thread : threads) thread.join();
    CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
    printf("%d threads, %d iterations each: cudaMalloc %ld, cudaMallocAsync %ld, crossed %ld and %ld\n", THREADS, iterations,
           counts.plain.load(), counts.async.load(), counts.plain_freed_async.load(), counts.async_freed_plainly.load());
    printf("wrong words: %llu %s\n", errors, errors ? "FAIL" : "ok");
    printf("time: %.0f ms\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    return errors != 0;
}
