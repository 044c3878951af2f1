// Captures and memory: graphs captured in all three modes while other threads allocate and free, graphs that are
// replayed while blocks are recycled around them, memory nodes, and captures that begin and end in a race with frees.
//
//   graphs modes|replay|nodes|race
#include <atomic>
#include <string>

#include "check.h"

constexpr size_t BYTES = 2 << 20, WORDS = BYTES / 4;
unsigned long long *wrong;  // words seen wrong by any check

unsigned long long take_wrong() {
    unsigned long long seen;
    CHECK(cudaMemcpy(&seen, wrong, sizeof seen, cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(wrong, 0, 8));
    return seen;
}

// Allocates, fills, checks and frees on its own stream, with frees right after the launches.
void churn(int rounds, uint32_t tag, std::atomic<long> *failed_calls) {
    cudaStream_t stream = new_stream();
    for (int i = 0; i < rounds; i++) {
        uint32_t *words;
        cudaError_t allocated = cudaMalloc(&words, BYTES);
        if (allocated == cudaSuccess) {
            fill<<<8, 256, 0, stream>>>(words, WORDS, tag + i, 20000);
            count_wrong<<<8, 256, 0, stream>>>(words, WORDS, tag + i, wrong);
            fill<<<8, 256, 0, stream>>>(words, WORDS, ~tag, 20000);
            if (cudaFree(words) == cudaSuccess) continue;
        }
        // Without the library a global capture makes other threads' calls fail.
        cudaGetLastError();
        if (failed_calls) (*failed_calls)++;
    }
    // A wait would kill a global capture as well, because of this program and not of the frees.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStreamSynchronize(stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaGetLastError();
}

void capture_in(cudaStreamCaptureMode mode, const char *name) {
    cudaStream_t stream = new_stream(), side = new_stream();
    uint32_t *words = device_alloc(BYTES);
    std::atomic<long> failed_calls{0};
    int lived = 0, correct = 0;
    const int rounds = 20;
    for (int round = 0; round < rounds; round++) {
        cudaGraph_t graph = nullptr;
        cudaEvent_t fork, join;
        CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        CHECK(cudaStreamBeginCapture(stream, mode));
        std::thread other(churn, 5, 0x1000u * (round + 1), &failed_calls);
        fill<<<8, 256, 0, stream>>>(words, WORDS, round, 0);
        cudaEventRecord(fork, stream);
        cudaStreamWaitEvent(side, fork, 0);
        fill<<<8, 256, 0, side>>>(words, WORDS / 2, round + 1, 0);
        other.join();
        cudaEventRecord(join, side);
        cudaStreamWaitEvent(stream, join, 0);
        count_wrong<<<8, 256, 0, stream>>>(words, WORDS / 2, round + 1, wrong);
        bool ended = cudaStreamEndCapture(stream, &graph) == cudaSuccess;
        cudaGetLastError();
        if (ended) {
            lived++;
            cudaGraphExec_t exec;
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaStreamSynchronize(stream));
            correct += holds(words, BYTES / 2, round + 1) && holds(words + WORDS / 2, BYTES / 2, round);
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphDestroy(graph));
        } else {
            // The streams of a dead capture may still be in it.
            stream = new_stream();
            side = new_stream();
        }
        CHECK(cudaEventDestroy(fork));
        CHECK(cudaEventDestroy(join));
    }
    CHECK(cudaFree(words));
    unsigned long long errors = take_wrong();
    bool must_live = mode != cudaStreamCaptureModeGlobal || under_library();
    bool ok = correct == lived && errors == 0 && (!must_live || (lived == rounds && failed_calls == 0));
    printf("%s: %s\n", name, ok ? "ok" : "FAIL");
    if (!ok || !must_live)
        printf("time: %s: %d of %d captures lived, %d correct, %ld calls failed, %llu wrong words\n", name, lived, rounds, correct,
               failed_calls.load(), errors);
}
void modes() {
    capture_in(cudaStreamCaptureModeThreadLocal, "thread-local");
    capture_in(cudaStreamCaptureModeRelaxed, "relaxed");
    capture_in(cudaStreamCaptureModeGlobal, "global");
}

// Replays a graph while other blocks are allocated and freed; the graph's own blocks stay alive.
void replay() {
    cudaStream_t stream = new_stream();
    uint32_t *words = device_alloc(BYTES), *copy = device_alloc(BYTES);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fill<<<8, 256, 0, stream>>>(words, WORDS, A, 30000);
    CHECK(cudaMemcpyAsync(copy, words, BYTES, cudaMemcpyDeviceToDevice, stream));
    count_wrong<<<8, 256, 0, stream>>>(copy, WORDS, A, wrong);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::thread others[3];
    for (int i = 0; i < 3; i++) others[i] = std::thread(churn, 200, 0x10000u * (i + 1), nullptr);
    for (int i = 0; i < 300; i++) CHECK(cudaGraphLaunch(exec, stream));
    for (auto &other : others) other.join();
    CHECK(cudaDeviceSynchronize());
    unsigned long long errors = take_wrong();
    printf("replay: %llu wrong words, %s\n", errors, errors == 0 && holds(copy, BYTES, A) ? "ok" : "FAIL");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// Uses cudaMallocAsync and cudaFreeAsync inside a capture, and shows what such graphs permit.
void nodes() {
    cudaStream_t stream = new_stream();
    cudaGraph_t graph, clone;
    cudaGraphExec_t exec, second;
    uint32_t *inside;
    size_t count = 0;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&inside, BYTES, stream));
    fill<<<8, 256, 0, stream>>>(inside, WORDS, A, 0);
    count_wrong<<<8, 256, 0, stream>>>(inside, WORDS, A, wrong);
    CHECK(cudaFreeAsync(inside, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    printf("nodes: %zu in the graph\n", count);
    cudaError_t again = cudaGraphInstantiate(&second, graph, 0), cloned = cudaGraphClone(&clone, graph);
    cudaGetLastError();
    printf("time: a second instantiation %s, a clone %s\n", cudaGetErrorName(again), cudaGetErrorName(cloned));
    for (int i = 0; i < 20; i++) {
        uint32_t *around = device_alloc(BYTES);
        fill<<<8, 256, 0, stream>>>(around, WORDS, B, 10000);
        CHECK(cudaGraphLaunch(exec, stream));
        count_wrong<<<8, 256, 0, stream>>>(around, WORDS, B, wrong);
        CHECK(cudaFree(around));
    }
    CHECK(cudaDeviceSynchronize());
    unsigned long long errors = take_wrong();
    printf("nodes: %llu wrong words, %s\n", errors, errors ? "FAIL" : "ok");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
}

// Captures begin and end without a pause while three threads free: a free that finds no capture
// running races with the begin of the next capture.
void race() {
    std::atomic<bool> stop{false};
    std::atomic<long> died{0}, captured{0};
    std::thread capturing([&] {
        cudaStream_t stream = new_stream();
        uint32_t *words = device_alloc(BYTES);
        while (!stop) {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            CHECK(cudaStreamBeginCapture(stream, captured % 2 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed));
            fill<<<8, 256, 0, stream>>>(words, WORDS, A, 0);
            count_wrong<<<8, 256, 0, stream>>>(words, WORDS, A, wrong);
            if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) {
                cudaGetLastError();
                died++;
                continue;
            }
            captured++;
            if (captured % 8 == 0) {
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                CHECK(cudaGraphLaunch(exec, stream));
                CHECK(cudaStreamSynchronize(stream));
                CHECK(cudaGraphExecDestroy(exec));
            }
            CHECK(cudaGraphDestroy(graph));
        }
        CHECK(cudaFree(words));
    });
    std::atomic<long> failed_calls{0};
    std::thread others[3];
    for (int i = 0; i < 3; i++) others[i] = std::thread(churn, 400, 0x10000u * (i + 1), &failed_calls);
    for (auto &other : others) other.join();
    stop = true;
    capturing.join();
    unsigned long long errors = take_wrong();
    bool ok = errors == 0 && died == 0 && failed_calls == 0 && captured > 0;
    printf("race: %ld captures died, %ld calls failed, %llu wrong words, %s\n", died.load(), failed_calls.load(), errors, ok ? "ok" : "FAIL");
    printf("time: %ld captures\n", captured.load());
}

int main(int argc, char **argv) {
    std::string only = argc > 1 ? argv[1] : "";
    watchdog("graphs", 100);
    load_kernels();
    wrong = device_alloc<unsigned long long>(256);
    CHECK(cudaMemset(wrong, 0, 256));
    if (only.empty() || only == "modes") modes();
    if (only.empty() || only == "replay") replay();
    if (only.empty() || only == "nodes") nodes();
    if (only.empty() || only == "race") race();
    return 0;
}
