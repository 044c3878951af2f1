// nvcc: -lcuda
// Device `printf`: where the text of a kernel appears, and that it appears at all before the end of the process.
//
//   kernel_text end            returns from main right after a free: the text must appear
//   kernel_text exit|quick     ends by exit, by quick_exit
//   kernel_text destructor     frees in a destructor of a static object
//   kernel_text at_once        ends by _exit; the C stream of the text is not buffered
//   kernel_text order          prints on the host after each free: the order of lines
//   kernel_text probe          which call flushes the text, once the kernel is complete
#include <fcntl.h>

#include <string>

#include "check.h"

__global__ void say(int number, unsigned long long ns) {
    if (threadIdx.x | blockIdx.x) return;
    wait_ns(ns);
    printf("the kernel says %d\n", number);
}
constexpr unsigned long long LATE = 50000000;

struct AtEnd {
    bool armed = false;
    void *block = nullptr;
    ~AtEnd() {
        if (!armed) return;
        say<<<1, 1>>>(2, LATE);
        cudaFree(block);
    }
} at_end;

// Returns the text that came out since the last call. Text goes through a file in place of
// descriptor 1.
struct Output {
    int file, real;
    off_t seen = 0;
    Output() {
        char path[] = "/tmp/kernel-text-XXXXXX";
        file = mkstemp(path);
        unlink(path);
        fflush(stdout);
        real = dup(1);
        dup2(file, 1);
    }
    bool has_more(bool flush) {
        if (flush) fflush(stdout);
        off_t now = lseek(file, 0, SEEK_END);
        bool more = now > seen;
        seen = now;
        return more;
    }
};

int probe() {
    cudaStream_t stream = new_stream(), idle = new_stream();
    cudaEvent_t done, later;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&later, cudaEventDisableTiming));
    CUcontext context;
    CHECK_DRIVER(cuCtxGetCurrent(&context));
    void *block = device_alloc(1 << 20), *ordered;
    CHECK(cudaMallocAsync(&ordered, 1 << 20, stream));
    CHECK(cudaStreamSynchronize(stream));
    say<<<1, 1, 0, stream>>>(0, 0);
    CHECK(cudaDeviceSynchronize());
    Output output;
    output.has_more(true);
    std::string text;
    auto look = [&](const char *name, auto call) {
        say<<<1, 1, 0, stream>>>(1, 1000000);
        CHECK(cudaEventRecord(done, stream));
        while (cudaEventQuery(done) == cudaErrorNotReady) sleep_ms(1);
        sleep_ms(5);
        bool by_query = output.has_more(true);
        call();
        bool at_once = output.has_more(false), by_call = output.has_more(true) || at_once;
        text += std::string(name) + ": query " + (by_query ? "yes" : "no") + ", call " + (by_call ? "yes" : "no");
        text += at_once ? ", past the buffers of C\n" : "\n";
        CHECK(cudaDeviceSynchronize());
        output.has_more(true);
    };
    look("cuEventSynchronize of a complete event", [&] { CHECK_DRIVER(cuEventSynchronize(done)); });
    look("cuCtxRecordEvent, cuEventSynchronize", [&] {
        CHECK_DRIVER(cuCtxRecordEvent(context, later));
        CHECK_DRIVER(cuEventSynchronize(later));
    });
    look("cuStreamSynchronize of its stream", [&] { CHECK_DRIVER(cuStreamSynchronize(stream)); });
    look("cuStreamSynchronize of an idle stream", [&] { CHECK_DRIVER(cuStreamSynchronize(idle)); });
    look("cuMemFreeAsync, cuStreamSynchronize", [&] {
        CHECK_DRIVER(cuMemFreeAsync((CUdeviceptr)ordered, idle));
        CHECK_DRIVER(cuStreamSynchronize(idle));
    });
    look("cuMemFree", [&] { CHECK_DRIVER(cuMemFree((CUdeviceptr)block)); });
    look("cuMemAlloc", [&] { block = device_alloc(1 << 20); });
    look("cuCtxSynchronize", [&] { CHECK_DRIVER(cuCtxSynchronize()); });
    look("cuMemcpyDtoH", [&] {
        int word;
        CHECK_DRIVER(cuMemcpyDtoH(&word, (CUdeviceptr)block, 4));
    });
    // While another kernel is still running: which calls wait for it?
    auto behind = [&](const char *name, auto call) {
        say<<<1, 1, 0, stream>>>(1, 1000000);
        CHECK(cudaEventRecord(done, stream));
        delay<<<1, 1, 0, idle>>>(200000000);
        while (cudaEventQuery(done) == cudaErrorNotReady) sleep_ms(1);
        output.has_more(true);
        auto start = std::chrono::steady_clock::now();
        call();
        double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        text += std::string(name) + " beside a kernel: text " + (output.has_more(true) ? "yes" : "no");
        text += ms > 50 ? ", waits\n" : ", does not wait\n";
        CHECK(cudaDeviceSynchronize());
        output.has_more(true);
    };
    behind("cuEventSynchronize of a complete event", [&] { CHECK_DRIVER(cuEventSynchronize(done)); });
    behind("cuStreamSynchronize of its stream", [&] { CHECK_DRIVER(cuStreamSynchronize(stream)); });
    dup2(output.real, 1);
    fputs(text.c_str(), stdout);
    return 0;
}

int main(int argc, char **argv) {
    std::string how = argc > 1 ? argv[1] : "end";
    watchdog("kernel_text", 60);
    if (how == "probe") return probe();
    if (how == "at_once") setvbuf(stdout, nullptr, _IONBF, 0);
    void *block = device_alloc(1 << 20), *second = device_alloc(1 << 20);
    cudaStream_t stream = new_stream();
    say<<<1, 1, 0, stream>>>(0, 0);
    CHECK(cudaDeviceSynchronize());
    say<<<1, 1, 0, stream>>>(1, LATE);
    CHECK(cudaFree(block));
    if (how == "order") {
        printf("the host after the first free\n");
        say<<<1, 1, 0, stream>>>(2, LATE);
        CHECK(cudaFree(second));
        printf("the host after the second free\n");
    }
    if (how == "destructor") {
        at_end.armed = true;
        at_end.block = second;
    }
    if (how == "exit") exit(0);
    if (how == "quick") quick_exit(0);
    if (how == "at_once") _exit(0);
    return 0;
}
