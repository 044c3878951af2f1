// nvcc: -lcuda
// Results of driver calls inside a host function, and the effect of calls that are not permitted there.
//
//   callbacks            the cases
//   callbacks probe      the driver's own codes, without the library
#include "cases.h"

constexpr size_t SMALL = 64 << 10;

struct Answers {
    CUdeviceptr mine, ordered;  // blocks to be freed inside
    CUstream stream;
    CUcontext context;
    std::string text;
};

void add(Answers &answers, const char *what, CUresult result) {
    if (!answers.text.empty()) answers.text += ", ";
    answers.text += what + std::string(" ") + code(result);
}

void ask(Answers &a) {
    CUdeviceptr block = 1;
    add(a, "malloc", cuMemAlloc(&block, SMALL));
    a.text += block == 1 ? " (untouched)" : block == 0 ? " (null)" : " (served)";
    block = 1;
    add(a, "malloc of 0", cuMemAlloc(&block, 0));
    add(a, "malloc async", cuMemAllocAsync(&block, SMALL, a.stream));
    a.text += block == 1 ? " (untouched)" : block == 0 ? " (null)" : " (served)";
    add(a, "free", cuMemFree(a.mine));
    add(a, "free of null", cuMemFree(0));
    add(a, "free of no block", cuMemFree(a.mine + 7));
    add(a, "free async", cuMemFreeAsync(a.ordered, a.stream));
    size_t free_bytes, total_bytes;
    add(a, "info", cuMemGetInfo(&free_bytes, &total_bytes));
    add(a, "range", cuMemGetAddressRange(&block, &total_bytes, a.mine));
}

void CUDA_CB host_function(void *data) { ask(*(Answers *)data); }
void CUDA_CB host_function_with_context(void *data) {
    Answers &a = *(Answers *)data;
    add(a, "set current", cuCtxSetCurrent(a.context));
    ask(a);
}
void CUDA_CB callback(CUstream, CUresult, void *data) { ask(*(Answers *)data); }

// A library could detect cheaply that it is inside a host function.
void CUDA_CB probe_function(void *data) {
    Answers &a = *(Answers *)data;
    unsigned long long id = 77;
    CUcontext current = (CUcontext)1;
    CUdevice device;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    add(a, "cuCtxGetId(null)", cuCtxGetId(nullptr, &id));
    add(a, "cuCtxGetId(context)", cuCtxGetId(a.context, &id));
    add(a, "cuCtxGetCurrent", cuCtxGetCurrent(&current));
    a.text += current ? " (one)" : " (none)";
    add(a, "cuCtxGetDevice", cuCtxGetDevice(&device));
    add(a, "cuStreamGetId(null)", cuStreamGetId(nullptr, &id));
    add(a, "cuStreamGetId(stream)", cuStreamGetId(a.stream, &id));
    add(a, "cuStreamQuery", cuStreamQuery(a.stream));
    CUstreamCaptureStatus status;
    add(a, "cuStreamIsCapturing", cuStreamIsCapturing(a.stream, &status));
    add(a, "cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    add(a, "cuCtxPushCurrent", cuCtxPushCurrent(a.context));
    add(a, "cuCtxGetId(null) then", cuCtxGetId(nullptr, &id));
    void *host = nullptr;
    add(a, "cuMemHostAlloc", cuMemHostAlloc(&host, SMALL, 0));
    CUevent event;
    add(a, "cuEventCreate", cuEventCreate(&event, 0));
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    add(a, "cuMemCreate", cuMemCreate(&handle, 2 << 20, &properties, 0));
    CUdeviceptr pitched;
    size_t pitch;
    add(a, "cuMemAllocPitch", cuMemAllocPitch(&pitched, &pitch, 1000, 10, 4));
}

Answers prepare() {
    Answers a = {};
    a.stream = new_stream();
    CHECK_DRIVER(cuCtxGetCurrent(&a.context));
    CHECK_DRIVER(cuMemAlloc(&a.mine, SMALL));
    CHECK_DRIVER(cuMemAllocAsync(&a.ordered, SMALL, a.stream));
    CHECK_DRIVER(cuStreamSynchronize(a.stream));
    return a;
}
// The blocks still belong to the program.
Verdict conclude(Answers &a) {
    CHECK_DRIVER(cuStreamSynchronize(a.stream));
    add(a, "then free", cuMemFree(a.mine));
    add(a, "free async", cuMemFreeAsync(a.ordered, a.stream));
    return a.text;
}
Verdict in_host_function() {
    Answers a = prepare();
    CHECK_DRIVER(cuLaunchHostFunc(a.stream, host_function, &a));
    return conclude(a);
}
Verdict in_host_function_with_context() {
    Answers a = prepare();
    CHECK_DRIVER(cuLaunchHostFunc(a.stream, host_function_with_context, &a));
    return conclude(a);
}
Verdict in_callback() {
    Answers a = prepare();
    CHECK_DRIVER(cuStreamAddCallback(a.stream, callback, &a, 0));
    return conclude(a);
}
Verdict probe_host_function() {
    Answers a = prepare();
    CHECK_DRIVER(cuLaunchHostFunc(a.stream, probe_function, &a));
    return conclude(a);
}
Verdict probe_callback() {
    Answers a = prepare();
    auto probe = [](CUstream, CUresult, void *data) { probe_function(data); };
    CHECK_DRIVER(cuStreamAddCallback(a.stream, probe, &a, 0));
    return conclude(a);
}

const Case CASES[] = {
    {"calls", "in_host_function", in_host_function},
    {"calls", "in_host_function_with_context", in_host_function_with_context},
    {"calls", "in_callback", in_callback},
    {"probe", "probe_host_function", probe_host_function},
    {"probe", "probe_callback", probe_callback},
};

int main(int argc, char **argv) { return run_cases(CASES, "cases", argc, argv); }
