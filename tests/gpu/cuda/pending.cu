// nvcc: -lcuda
// Every kind of request against every kind of memory that is about to become free: is it served, at
// once or after a wait? Only 8 GiB are free. They are allocated in pieces, and freed in one of the
// ways below. Then, while a kernel still runs on another stream or on the one of the free, the
// program requests nearly all of them. Without the library the table describes the driver
// (docs/ordering.md quotes it). Under the library it must be the same or better: a request that the
// driver serves must not fail, and one that it serves at once must not wait.
//
//     pending [PENDING [REQUEST]]     one row, or one cell
#include <atomic>
#include <string>

#include "check.h"

constexpr size_t MIB = 1 << 20;
// The kernel ends after this time; a request that took most of it has waited for the kernel.
constexpr unsigned long long KERNEL_NS = 150000000ull;
// Memory that is allocated and requested: as much as the driver maps in a fraction of that time.
// The rest of the device is held.
constexpr size_t ROOM = 8192 * MIB;

cudaStream_t freed_on, idle_stream;
size_t room;  // what the pieces hold together

size_t free_bytes() {
    size_t free, total;
    CHECK_DRIVER(cuMemGetInfo(&free, &total));
    return free;
}

struct Piece {
    CUdeviceptr address;
    bool stream_ordered;
};
std::vector<Piece> pieces;
CUmemoryPool own_pool;

CUmemPoolProps pool_properties() {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return properties;
}

void take(int count, bool stream_ordered) {
    for (int i = 0; i < count; i++) {
        size_t bytes = room / count & ~(2 * MIB - 1);
        Piece piece = {0, stream_ordered};
        CHECK_DRIVER(stream_ordered ? cuMemAllocAsync(&piece.address, bytes, freed_on) : cuMemAlloc(&piece.address, bytes));
        pieces.push_back(piece);
    }
    CHECK(cudaStreamSynchronize(freed_on));  // not the context: something may capture
}

// ---- how memory is freed ----

struct Pending {
    const char *name;
    // Frees the pieces. Returns whether a kernel runs afterwards that the request could wait for.
    bool (*give)();
};

void work(cudaStream_t stream) { delay<<<1, 1, 0, stream>>>(KERNEL_NS); }

template <int count>
bool freed_plainly() {
    take(count, false);
    for (auto &piece : pieces) CHECK_DRIVER(cuMemFree(piece.address));
    work(idle_stream);
    return true;
}
bool freed_behind_kernel() {  // the free waits for it
    take(1, false);
    work(freed_on);
    CHECK_DRIVER(cuMemFree(pieces[0].address));
    return false;
}
template <int count>
bool ordered_done() {
    take(count, true);
    for (auto &piece : pieces) CHECK_DRIVER(cuMemFreeAsync(piece.address, freed_on));
    sleep_ms(20);  // complete, and nothing has synchronised since
    work(idle_stream);
    return true;
}
bool ordered_synchronised() {
    take(1, true);
    CHECK_DRIVER(cuMemFreeAsync(pieces[0].address, freed_on));
    CHECK_DRIVER(cuStreamSynchronize(freed_on));
    work(idle_stream);
    return true;
}
template <int count>
bool ordered_behind_kernel() {
    take(count, true);
    work(freed_on);
    for (auto &piece : pieces) CHECK_DRIVER(cuMemFreeAsync(piece.address, freed_on));
    return true;
}
bool ordered_freed_plainly() {
    take(1, true);
    work(idle_stream);
    CHECK_DRIVER(cuMemFree(pieces[0].address));
    return true;
}
bool ordered_freed_plainly_behind_own_work() {  // work of its own stream, which does not touch it
    take(1, true);
    work(freed_on);
    CHECK_DRIVER(cuMemFree(pieces[0].address));
    return true;
}
bool plain_freed_in_order() {
    take(1, false);
    work(freed_on);
    CHECK_DRIVER(cuMemFreeAsync(pieces[0].address, freed_on));
    return true;
}
bool plain_freed_in_order_done() {
    take(1, false);
    CHECK_DRIVER(cuMemFreeAsync(pieces[0].address, freed_on));
    sleep_ms(20);
    work(idle_stream);
    return true;
}
template <bool keeps>
bool own_pool_done() {
    CHECK_DRIVER(cuStreamSynchronize(freed_on));
    CUmemPoolProps properties = pool_properties();
    CHECK_DRIVER(cuMemPoolCreate(&own_pool, &properties));
    cuuint64_t threshold = keeps ? UINT64_MAX : 0;
    CHECK_DRIVER(cuMemPoolSetAttribute(own_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUdeviceptr address;
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&address, room, own_pool, freed_on));
    CHECK_DRIVER(cuMemFreeAsync(address, freed_on));
    CHECK_DRIVER(cuStreamSynchronize(freed_on));
    work(idle_stream);
    return true;
}
// Another thread is inside cuMemFree, which waits for a kernel.
std::thread helper;
bool being_freed() {
    take(1, false);
    work(freed_on);
    helper = std::thread([] {
        CHECK(cudaSetDevice(0));
        CHECK_DRIVER(cuMemFree(pieces[0].address));
    });
    sleep_ms(30);
    return true;
}

const Pending PENDINGS[] = {
    {"freed", freed_plainly<1>},
    {"freed-6", freed_plainly<6>},
    {"freed-behind-kernel", freed_behind_kernel},
    {"being-freed", being_freed},
    {"async-done", ordered_done<1>},
    {"async-done-6", ordered_done<6>},
    {"async-synchronised", ordered_synchronised},
    {"async-behind-kernel", ordered_behind_kernel<1>},
    {"async-behind-kernel-6", ordered_behind_kernel<6>},
    {"async-cuMemFree", ordered_freed_plainly},
    {"async-cuMemFree-own-work", ordered_freed_plainly_behind_own_work},
    {"plain-freed-async", plain_freed_in_order},
    {"plain-freed-async-done", plain_freed_in_order_done},
    {"pool-done", own_pool_done<false>},
    {"pool-keeps", own_pool_done<true>},
};

// ---- requests: each frees its memory ----

struct Request {
    const char *name;
    CUresult (*ask)(size_t bytes);
};

CUresult plain(size_t bytes) {
    CUdeviceptr address;
    CUresult code = cuMemAlloc(&address, bytes);
    pieces.clear();
    if (code == CUDA_SUCCESS) pieces.push_back({address, false});
    return code;
}
CUresult in_order(size_t bytes, cudaStream_t stream) {
    CUdeviceptr address;
    CUresult code = cuMemAllocAsync(&address, bytes, stream);
    pieces.clear();
    if (code == CUDA_SUCCESS) pieces.push_back({address, true});
    return code;
}
CUresult same_stream(size_t bytes) { return in_order(bytes, freed_on); }
cudaStream_t fresh;
CUresult other_stream(size_t bytes) { return in_order(bytes, fresh); }
cudaEvent_t event;
CUresult stream_behind_event(size_t bytes) {
    CHECK(cudaEventRecord(event, freed_on));
    CHECK(cudaStreamWaitEvent(fresh, event));
    return in_order(bytes, fresh);
}
CUresult pitched(size_t bytes) {
    CUdeviceptr address;
    size_t pitch;
    CUresult code = cuMemAllocPitch(&address, &pitch, MIB, bytes / MIB, 16);
    pieces.clear();
    if (code == CUDA_SUCCESS) pieces.push_back({address, false});
    return code;
}
CUmemGenericAllocationHandle physical;
CUresult created(size_t bytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    pieces.clear();
    CUresult code = cuMemCreate(&physical, bytes, &properties, 0);
    if (code != CUDA_SUCCESS) physical = 0;
    return code;
}
CUmemoryPool asked_pool;
CUresult from_pool(size_t bytes) {
    CUdeviceptr address;
    CUresult code = cuMemAllocFromPoolAsync(&address, bytes, asked_pool, fresh);
    pieces.clear();
    if (code == CUDA_SUCCESS) pieces.push_back({address, true});
    return code;
}
std::vector<CUarray> arrays;
CUresult array(size_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR description = {};
    description.Width = 8192;
    description.Height = 8192;
    description.Depth = 1;
    description.Format = CU_AD_FORMAT_FLOAT;
    description.NumChannels = 4;
    const size_t each = 16ull * 8192 * 8192;  // 1 GiB
    pieces.clear();
    for (size_t left = bytes; left >= each; left -= each) {
        CUarray made;
        CUresult code = cuArray3DCreate(&made, &description);
        if (code != CUDA_SUCCESS) return code;
        arrays.push_back(made);
    }
    return CUDA_SUCCESS;
}

const Request REQUESTS[] = {
    {"cuMemAlloc", plain},       {"async-same", same_stream}, {"async-other", other_stream}, {"async-event", stream_behind_event},
    {"cuMemAllocPitch", pitched}, {"cuMemCreate", created},   {"own-pool", from_pool},       {"array", array},
};

// ---- beside a capture of another thread ----

std::atomic<int> capture_step;
std::thread capturer;
void begin_capture(cudaStreamCaptureMode mode) {
    capture_step = 0;
    capturer = std::thread([mode] {
        CHECK(cudaSetDevice(0));
        cudaStream_t stream = new_stream();
        CHECK(cudaStreamBeginCapture(stream, mode));
        capture_step = 1;
        while (capture_step != 2) sleep_ms(1);
        delay<<<1, 1, 0, stream>>>(0);
        cudaGraph_t graph;
        cudaError_t code = cudaStreamEndCapture(stream, &graph);
        if (code == cudaSuccess) CHECK(cudaGraphDestroy(graph));
        if (code != cudaSuccess) printf("(the capture died: %s) ", cudaGetErrorName(code));
        cudaGetLastError();
        CHECK(cudaStreamDestroy(stream));
    });
    while (capture_step != 1) sleep_ms(1);
}
void end_capture() {
    capture_step = 2;
    capturer.join();
}

void tidy() {
    if (helper.joinable()) helper.join();
    CHECK(cudaDeviceSynchronize());
    for (auto &piece : pieces) CHECK_DRIVER(piece.stream_ordered ? cuMemFreeAsync(piece.address, freed_on) : cuMemFree(piece.address));
    pieces.clear();
    for (auto made : arrays) CHECK_DRIVER(cuArrayDestroy(made));
    arrays.clear();
    if (physical) CHECK_DRIVER(cuMemRelease(physical));
    physical = 0;
    CHECK(cudaDeviceSynchronize());
    if (own_pool) CHECK_DRIVER(cuMemPoolDestroy(own_pool));
    own_pool = nullptr;
    CHECK_DRIVER(cuMemPoolTrimTo(asked_pool, 0));
    CHECK(cudaDeviceSynchronize());
}

void cell(const Pending &pending, const Request &request, bool captures, cudaStreamCaptureMode mode) {
    if (captures) begin_capture(mode);
    bool running = pending.give();
    auto begun = std::chrono::steady_clock::now();
    CUresult code = request.ask(room / 100 * 95 & ~(2 * MIB - 1));
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun).count();
    if (captures) end_capture();
    const char *when = !running ? "" : ms > 90 ? " after a wait" : " at once";
    if (code == CUDA_SUCCESS) printf("  %-16s served%s\n", request.name, when);
    else printf("  %-16s error %d%s\n", request.name, code, when);
    fflush(stdout);
    tidy();
}

int main(int count, char **arguments) {
    watchdog("pending", 300);
    std::string only_pending = count > 1 ? arguments[1] : "", only_request = count > 2 ? arguments[2] : "";
    const char *capture = getenv("PENDING_CAPTURE");  // global, thread-local, relaxed
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (capture && !strcmp(capture, "thread-local")) mode = cudaStreamCaptureModeThreadLocal;
    load_kernels();
    freed_on = new_stream();
    idle_stream = new_stream();
    fresh = new_stream();
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUmemPoolProps properties = pool_properties();
    CHECK_DRIVER(cuMemPoolCreate(&asked_pool, &properties));
    CUdeviceptr first;  // memory that the first use of each kind takes permanently
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&first, MIB, asked_pool, fresh));
    CHECK_DRIVER(cuMemFreeAsync(first, fresh));
    CHECK_DRIVER(cuMemAllocAsync(&first, MIB, freed_on));
    CHECK_DRIVER(cuMemFreeAsync(first, freed_on));
    CHECK(cudaDeviceSynchronize());
    CUdeviceptr ballast;
    CHECK_DRIVER(cuMemAlloc(&ballast, (free_bytes() - ROOM - 512 * MIB) & ~(2 * MIB - 1)));
    room = ROOM;
    for (auto &pending : PENDINGS) {
        if (!only_pending.empty() && only_pending != pending.name) continue;
        printf("%s\n", pending.name);
        for (auto &request : REQUESTS)
            if (only_request.empty() || only_request == request.name) cell(pending, request, capture != nullptr, mode);
    }
    return 0;
}
