// Memory of captures. `objects` queries what keeps a user object alive, and also runs without the
// library. The others allocate and free inside captures, which ends a capture without the library:
// they run under the library only, and check their own results.
//
//   graph_memory objects|modes|threads|ordered
#include <algorithm>
#include <atomic>
#include <string>

#include "check.h"

constexpr size_t BYTES = 3 << 20, WORDS = BYTES / 4;
unsigned long long *wrong;  // words seen wrong by any check

unsigned long long take_wrong() {
    unsigned long long seen;
    CHECK(cudaMemcpy(&seen, wrong, sizeof seen, cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(wrong, 0, 8));
    return seen;
}

// ---- what keeps a user object alive ----

std::atomic<int> fired[16];
extern "C" void CUDART_CB fires(void *number) { fired[(size_t)number]++; }

// The graph that a stream captures into, and one of its terminals. The functions changed with CUDA
// 13.
cudaGraph_t capturing_graph(cudaStream_t stream, cudaGraphNode_t *terminal = nullptr) {
    cudaStreamCaptureStatus status;
    unsigned long long id;
    cudaGraph_t graph;
    const cudaGraphNode_t *terminals = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &terminals, nullptr, &count));
#else
    CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &terminals, &count));
#endif
    if (terminal) *terminal = terminals[0];
    return graph;
}
cudaError_t change_terminals(cudaStream_t stream, cudaGraphNode_t terminal, unsigned how) {
#if CUDART_VERSION >= 13000
    return cudaStreamUpdateCaptureDependencies(stream, &terminal, nullptr, 1, how);
#else
    return cudaStreamUpdateCaptureDependencies(stream, &terminal, 1, how);
#endif
}

// A graph with a kernel and a user object of this number.
cudaGraph_t graph_with(size_t number, cudaStream_t stream, uint32_t *words, uint32_t value, unsigned long long ns) {
    cudaGraph_t graph;
    cudaUserObject_t object;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fill<<<1, 32, 0, stream>>>(words, 32, value, ns);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaUserObjectCreate(&object, (void *)number, fires, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    return graph;
}

void say(const char *what, const char *when, size_t number) {
    CHECK(cudaDeviceSynchronize());
    sleep_ms(200);
    printf("%s, %s: %s\n", what, when, fired[number] ? "gone" : "alive");
}

void objects() {
    cudaStream_t stream = new_stream(), side = new_stream();
    uint32_t *words = device_alloc(4096);
    cudaGraph_t graph, other, copy;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    {
        graph = graph_with(0, stream, words, 1, 0);
        other = graph_with(1, stream, words, 2, 0);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        cudaGraphExecUpdateResultInfo result;
        CHECK(cudaGraphExecUpdate(exec, other, &result));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphDestroy(other));
        say("update", "the old graph's", 0);
        say("update", "the new graph's", 1);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaGraphExecDestroy(exec));
        say("update", "the new graph's, without the executable", 1);
    }
    {
        graph = graph_with(2, stream, words, 1, 0);
        CHECK(cudaGraphClone(&copy, graph));
        CHECK(cudaGraphDestroy(graph));
        say("clone", "without the graph", 2);
        CHECK(cudaGraphDestroy(copy));
        say("clone", "without the clone", 2);
    }
    {
        graph = graph_with(3, stream, words, 1, 0);
        CHECK(cudaGraphCreate(&other, 0));
        CHECK(cudaGraphAddChildGraphNode(&node, other, nullptr, 0, graph));
        CHECK(cudaGraphDestroy(graph));
        say("child", "without the graph", 3);
        CHECK(cudaGraphInstantiate(&exec, other, 0));
        CHECK(cudaGraphDestroy(other));
        say("child", "without the parent", 3);
        CHECK(cudaGraphExecDestroy(exec));
        say("child", "without the executable", 3);
    }
    {
        graph = graph_with(5, stream, words, 1, 0);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        // Refused on an H200 (driver 580), together with the capture: there is no such child graph.
        cudaError_t launched = cudaGraphLaunch(exec, stream);
        cudaError_t ended = cudaStreamEndCapture(stream, &other);
        cudaGetLastError();
        printf("launch into a capture: %s, then %s\n", cudaGetErrorName(launched), cudaGetErrorName(ended));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        if (ended == cudaSuccess) {
            say("launch into a capture", "without graph and executable", 5);
            CHECK(cudaGraphDestroy(other));
        }
        say("launch into a capture", "without the captured one", 5);
    }
    {
        graph = graph_with(6, stream, words, 1, 400000000);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        // Checked before its kernel has ended, if the calls above did not wait for that.
        bool running = cudaStreamQuery(stream) == cudaErrorNotReady;
        cudaGetLastError();
        printf("in flight: %s\n", running && fired[6] ? "gone while it runs" : "alive while it runs");
        printf("time: it %s when both were destroyed\n", running ? "ran" : "was over");
        say("in flight", "afterwards", 6);
    }
    {
        cudaUserObject_t object;
        for (size_t number = 7; number < 9; number++) {
            cudaStream_t doomed = new_stream();
            CHECK(cudaStreamBeginCapture(doomed, cudaStreamCaptureModeRelaxed));
            fill<<<1, 32, 0, doomed>>>(words, 32, 1, 0);
            graph = capturing_graph(doomed);
            CHECK(cudaUserObjectCreate(&object, (void *)number, fires, 1, cudaUserObjectNoDestructorSync));
            CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
            if (number == 7) {
                printf("dead capture: killed by %s", cudaGetErrorName(cudaStreamSynchronize(doomed)));
                cudaGetLastError();
                printf(", ended by %s\n", cudaGetErrorName(cudaStreamEndCapture(doomed, &graph)));
                cudaGetLastError();
                say("dead capture", "after its end", number);
            } else {
                cudaStreamDestroy(doomed);
                cudaGetLastError();
                say("abandoned capture", "without its stream", number);
            }
        }
    }
    // Sets terminals by hand: may a joined stream be moved after a later node of another one?
    for (int how = 0; how < 3; how++) {
        cudaEvent_t event;
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        fill<<<1, 32, 0, stream>>>(words, 32, 1, 0);
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(side, event, 0));
        if (how < 2) fill<<<1, 32, 0, side>>>(words + 32, 32, 1, 0);
        CHECK(cudaEventRecord(event, side));
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        fill<<<1, 32, 0, stream>>>(words, 32, 2, 0);
        cudaGraphNode_t newest;
        capturing_graph(stream, &newest);
        unsigned set = how == 0 ? cudaStreamSetCaptureDependencies : cudaStreamAddCaptureDependencies;
        cudaError_t done = how == 2 ? cudaSuccess : change_terminals(side, newest, set);
        cudaError_t ended = cudaStreamEndCapture(stream, &graph);
        cudaGetLastError();
        const char *names[] = {"set on a joined stream", "added to a joined stream", "a stream that only waited"};
        printf("%s: %s, then %s\n", names[how], cudaGetErrorName(done), cudaGetErrorName(ended));
        if (ended == cudaSuccess) CHECK(cudaGraphDestroy(graph));
        CHECK(cudaEventDestroy(event));
    }
    CHECK(cudaFree(words));
}

// ---- captures that allocate ----

__global__ void step(uint32_t *to, const uint32_t *from, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i] * 3 + 1;
}

void joins(cudaStream_t stream, cudaStream_t other) {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    CHECK(cudaEventDestroy(event));
}

constexpr int STEPS = 24;

// A chain of temporaries on two streams, from `input` to `output`.
void chain(cudaStream_t stream, cudaStream_t side, const uint32_t *input, uint32_t *output) {
    const uint32_t *from = input;
    for (int i = 0; i < STEPS; i++) {
        cudaStream_t on = i % 4 == 2 ? side : stream, last = i % 4 == 3 ? side : stream;
        if (on != last) joins(on, last);
        uint32_t *to = i == STEPS - 1 ? output : device_alloc(BYTES), *scratch = device_alloc(BYTES / 2);
        fill<<<8, 256, 0, on>>>(scratch, WORDS / 2, 0xdead0000u + i, 0);
        step<<<8, 256, 0, on>>>(to, from, WORDS);
        CHECK(cudaFree(scratch));
        if (from != input) CHECK(cudaFree((void *)from));
        from = to;
    }
}

uint32_t after_chain(uint32_t value) {
    for (int i = 0; i < STEPS; i++) value = value * 3 + 1;
    return value;
}

size_t free_bytes() {
    size_t free_now, total;
    CHECK(cudaDeviceSynchronize());
    sleep_ms(100);
    CHECK(cudaMemGetInfo(&free_now, &total));
    CHECK(cudaMemGetInfo(&free_now, &total));
    return free_now;
}

void capture_in(cudaStreamCaptureMode mode, const char *name) {
    cudaStream_t stream = new_stream(), side = new_stream(), other = new_stream();
    uint32_t *input = device_alloc(BYTES), *output = device_alloc(BYTES);
    size_t before = free_bytes();
    cudaGraph_t graph;
    cudaGraphExec_t exec, second;
    CHECK(cudaStreamBeginCapture(stream, mode));
    chain(stream, side, input, output);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (ended != cudaSuccess) {
        printf("%s: FAIL, the capture ended with %s\n", name, cudaGetErrorName(ended));
        return;
    }
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphInstantiate(&second, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    size_t during = free_bytes();
    uint32_t *around[4] = {};
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t *&mine = around[i % 4];
        if (mine) {
            count_wrong<<<8, 256, 0, other>>>(mine, WORDS, i - 4, wrong);
            CHECK(cudaFree(mine));
        }
        mine = device_alloc(i % 3 ? BYTES : 8 * BYTES);
        fill<<<8, 256, 0, other>>>(mine, WORDS, i, 0);
        fill<<<8, 256, 0, stream>>>(input, WORDS, i, 0);
        CHECK(cudaGraphLaunch(i % 2 ? exec : second, stream));
        count_wrong<<<8, 256, 0, stream>>>(output, WORDS, after_chain(i), wrong);
    }
    CHECK(cudaDeviceSynchronize());
    for (uint32_t i = 0; i < 4; i++) {
        count_wrong<<<8, 256, 0, other>>>(around[i], WORDS, 996 + i, wrong);
        CHECK(cudaFree(around[i]));
    }
    unsigned long long errors = take_wrong();
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(second));
    size_t after = free_bytes();
    bool back = after + (32 << 20) >= before;
    printf("%s: %s\n", name, errors == 0 && back ? "ok" : "FAIL");
    printf("time: %s: %llu wrong words; free MiB before, during, after: %zu %zu %zu\n", name, errors, before >> 20, during >> 20,
           after >> 20);
    CHECK(cudaFree(input));
    CHECK(cudaFree(output));
}

void modes() {
    capture_in(cudaStreamCaptureModeThreadLocal, "thread-local");
    capture_in(cudaStreamCaptureModeRelaxed, "relaxed");
    capture_in(cudaStreamCaptureModeGlobal, "global");
}

// Two threads capture and launch, and two others allocate and free normally; then one captures
// globally while another allocates for it.
void threads() {
    std::atomic<bool> stop{false};
    std::atomic<long> died{0}, captured{0}, rounds{0};
    std::vector<std::thread> all;
    for (int t = 0; t < 2; t++)
        all.emplace_back([&, t] {
            cudaStream_t stream = new_stream(), side = new_stream();
            uint32_t *input = device_alloc(BYTES), *output = device_alloc(BYTES);
            for (uint32_t i = 0; i < 40; i++) {
                cudaGraph_t graph;
                cudaGraphExec_t exec;
                CHECK(cudaStreamBeginCapture(stream, i % 2 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed));
                chain(stream, side, input, output);
                if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) {
                    cudaGetLastError();
                    died++;
                    stream = new_stream(), side = new_stream();
                    continue;
                }
                captured++;
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                CHECK(cudaGraphDestroy(graph));
                for (uint32_t k = 0; k < 5; k++) {
                    uint32_t value = 1000 * t + i * 5 + k;
                    fill<<<8, 256, 0, stream>>>(input, WORDS, value, 0);
                    CHECK(cudaGraphLaunch(exec, stream));
                    count_wrong<<<8, 256, 0, stream>>>(output, WORDS, after_chain(value), wrong);
                }
                CHECK(cudaGraphExecDestroy(exec));
            }
            cudaStreamSynchronize(stream);
            CHECK(cudaFree(input));
            CHECK(cudaFree(output));
        });
    for (int t = 0; t < 2; t++)
        all.emplace_back([&, t] {
            cudaStream_t stream = new_stream();
            while (!stop) {
                uint32_t *mine = device_alloc(rounds % 2 ? BYTES : 4 * BYTES);
                fill<<<8, 256, 0, stream>>>(mine, WORDS, 77 + t, 10000);
                count_wrong<<<8, 256, 0, stream>>>(mine, WORDS, 77 + t, wrong);
                CHECK(cudaFree(mine));
                rounds++;
            }
        });
    all[0].join();
    all[1].join();
    stop = true;
    all[2].join();
    all[3].join();
    CHECK(cudaDeviceSynchronize());
    unsigned long long errors = take_wrong();
    printf("threads: %ld captures died, %llu wrong words, %s\n", died.load(), errors, died || errors ? "FAIL" : "ok");
    printf("time: %ld captures, %ld ordinary rounds\n", captured.load(), rounds.load());

    cudaStream_t stream = new_stream(), side = new_stream();
    uint32_t *input = device_alloc(BYTES), *output = device_alloc(BYTES);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::thread(chain, stream, side, input, output).join();
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (ended == cudaSuccess) {
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t *mine = device_alloc(BYTES);
            fill<<<8, 256, 0, side>>>(mine, WORDS, i, 0);
            fill<<<8, 256, 0, stream>>>(input, WORDS, i, 0);
            CHECK(cudaGraphLaunch(exec, stream));
            count_wrong<<<8, 256, 0, stream>>>(output, WORDS, after_chain(i), wrong);
            count_wrong<<<8, 256, 0, side>>>(mine, WORDS, i, wrong);
            CHECK(cudaFree(mine));
        }
    }
    CHECK(cudaDeviceSynchronize());
    errors = take_wrong();
    printf("another thread's memory: %s, %llu wrong words, %s\n", cudaGetErrorName(ended), errors,
           ended != cudaSuccess || errors ? "FAIL" : "ok");
}

// cudaMallocAsync in a capture, without memory nodes (`graph_pool:true`); with nodes it also runs
// without the library.
void ordered() {
    cudaStream_t stream = new_stream();
    cudaGraph_t graph, clone = nullptr;
    cudaGraphExec_t exec, second = nullptr;
    uint32_t *first, *last;
    size_t count = 0;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&first, BYTES, stream));
    fill<<<8, 256, 0, stream>>>(first, WORDS, A, 0);
    count_wrong<<<8, 256, 0, stream>>>(first, WORDS, A, wrong);
    CHECK(cudaFreeAsync(first, stream));
    CHECK(cudaMallocAsync((void **)&last, BYTES, stream));
    fill<<<8, 256, 0, stream>>>(last, WORDS, B, 0);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaError_t again = cudaGraphInstantiate(&second, graph, 0), cloned = cudaGraphClone(&clone, graph);
    cudaGetLastError();
    printf("ordered: %zu nodes, a second instantiation %s, a clone %s\n", count, cudaGetErrorName(again), cudaGetErrorName(cloned));
    for (int i = 0; i < 20; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
        count_wrong<<<8, 256, 0, stream>>>(last, WORDS, B, wrong);
        CHECK(cudaFreeAsync(last, stream));
        uint32_t *around;
        CHECK(cudaMallocAsync((void **)&around, BYTES, stream));
        fill<<<8, 256, 0, stream>>>(around, WORDS, i, 0);
        CHECK(cudaFreeAsync(around, stream));
    }
    CHECK(cudaDeviceSynchronize());
    unsigned long long errors = take_wrong();
    printf("ordered: %llu wrong words, %s\n", errors, errors == 0 ? "ok" : "FAIL");
    if (second) CHECK(cudaGraphExecDestroy(second));
    if (clone) CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    // Measures the launch of three nodes, an allocation, a kernel and a free, and of the kernel
    // alone.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&first, BYTES, stream));
    fill<<<1, 32, 0, stream>>>(first, 32, A, 0);
    CHECK(cudaFreeAsync(first, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<double> us;
    for (int i = 0; i < 2000; i++) {
        auto start = std::chrono::steady_clock::now();
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(us.begin(), us.end());
    printf("time: launch and synchronise, alloc + kernel + free: median %.2f us\n", us[us.size() / 2]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main(int argc, char **argv) {
    std::string only = argc > 1 ? argv[1] : "";
    watchdog("graph_memory", 110);
    load_kernels();
    wrong = device_alloc<unsigned long long>(256);
    CHECK(cudaMemset(wrong, 0, 256));
    if (only == "objects") objects();
    if (only == "modes") modes();
    if (only == "threads") threads();
    if (only == "ordered") ordered();
    return 0;
}
