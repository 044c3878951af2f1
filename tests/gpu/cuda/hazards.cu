// nvcc: -lcuda
// Programs that break careless versions of the freeing rules. Each is legal CUDA, or common in practice, and works
// without the library. The number in brackets refers to the list of hazards in docs/ordering.md. Most hazards are
// programs of tests/programs/hazards, which run on a GPU as well. These need more there: kernels that read a texture,
// start early or come from a module that is unloaded, a device that is nearly full, a fork, or a check of contents in
// place of a race detector.
//
//   hazards                 all of them
//   hazards NAME|GROUP...   only these
//   hazards --list
#include <functional>
#include <thread>

#include "cases.h"

constexpr unsigned long long LATE = 15000000;  // ns
constexpr size_t SMALL = 64 << 10, BYTES = 4 << 20, WORDS = BYTES / 4;

// ---------------------------------------------------------------- visibility: the host reads after a free

struct Argument {
    char tag;
    uint32_t *nothing;
    struct {
        float scale;
        uint32_t *word;
    } inner;
};
__global__ void fill_through_struct(Argument argument, unsigned long long ns) {
    wait_ns(ns);
    *(volatile uint32_t *)argument.inner.word = 7;
}
Verdict pinned_in_struct() {
    cudaStream_t stream = new_stream();
    volatile uint32_t *word = pinned_alloc(4096);
    *word = 0;
    Argument argument = {'x', nullptr, {1.0f, (uint32_t *)word}};
    fill_through_struct<<<1, 1, 0, stream>>>(argument, 0);
    CHECK(cudaDeviceSynchronize());
    *word = 0;
    void *unrelated = device_alloc(SMALL);
    fill_through_struct<<<1, 1, 0, stream>>>(argument, LATE);
    CHECK(cudaFree(unrelated));
    return ok_if(*word == 7, "the host read before the kernel had written");
}

// [72] A synchronous copy for which the driver may not wait: it treats managed memory as device
// memory.
Verdict copy_late(CUdeviceptr to, CUdeviceptr from, const std::function<bool()> &look) {
    void *unrelated = device_alloc(SMALL);
    delay<<<1, 1>>>(LATE);
    CHECK_DRIVER(cuMemcpy(to, from, SMALL));
    CHECK(cudaFree(unrelated));
    return ok_if(look(), "the host read before the work was done");
}
Verdict copy_to_managed() {
    uint32_t *source = device_alloc(SMALL), *managed;
    CHECK(cudaMallocManaged((void **)&managed, SMALL));
    CHECK(cudaMemset(source, A & 0xff, SMALL));
    CHECK(cudaDeviceSynchronize());
    return copy_late((CUdeviceptr)managed, (CUdeviceptr)source, [&] { return *(volatile uint32_t *)managed == A; });
}
Verdict copy_from_managed() {
    uint32_t *target = device_alloc(SMALL), *managed;
    CHECK(cudaMallocManaged((void **)&managed, SMALL));
    memset(managed, A & 0xff, SMALL);
    return copy_late((CUdeviceptr)target, (CUdeviceptr)managed, [&] {
        memset(managed, B & 0xff, SMALL);
        return holds(target, SMALL, A);
    });
}

// ---------------------------------------------------------------- teardown after a free

__global__ void read_texture(cudaTextureObject_t texture, uint32_t *out, int count, unsigned long long ns) {
    wait_ns(ns);
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tex1Dfetch<uint32_t>(texture, i);
}
cudaTextureObject_t new_texture(uint32_t *words, size_t bytes) {
    cudaTextureObject_t texture;
    cudaResourceDesc resource = {};
    cudaTextureDesc description = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = words;
    resource.res.linear.desc = cudaCreateChannelDesc<uint32_t>();
    resource.res.linear.sizeInBytes = bytes;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    return texture;
}
Verdict destroy_texture() {
    cudaStream_t stream = new_stream();
    uint32_t *words = device_alloc(SMALL), *out = device_alloc(SMALL);
    void *unrelated = device_alloc(SMALL);
    CHECK(cudaMemset(words, A & 0xff, SMALL));
    cudaTextureObject_t texture = new_texture(words, SMALL);
    read_texture<<<1, 256, 0, stream>>>(texture, out, SMALL / 4, 0);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemset(out, 0, SMALL));
    CHECK(cudaDeviceSynchronize());
    read_texture<<<1, 256, 0, stream>>>(texture, out, SMALL / 4, LATE);
    CHECK(cudaFree(unrelated));
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(out, SMALL, A), "the kernel read a destroyed texture");
}
// late(words, count): a kernel of the driver API that spins, then writes 7 into words[0].
const char *const LATE_PTX = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry late(.param .u64 words, .param .u64 ns)
{
  .reg .pred %p; .reg .b64 %w, %n, %start, %now; .reg .b32 %v;
  ld.param.u64 %w, [words]; ld.param.u64 %n, [ns];
  cvta.to.global.u64 %w, %w;
  mov.u64 %start, %globaltimer;
spin:
  mov.u64 %now, %globaltimer; sub.u64 %now, %now, %start;
  setp.lt.u64 %p, %now, %n; @%p bra spin;
  mov.u32 %v, 7; st.global.u32 [%w], %v; ret;
}
)";
Verdict unload_module() {
    cudaStream_t stream = new_stream();
    uint32_t *word = device_alloc(SMALL);
    void *unrelated = device_alloc(SMALL);
    CUmodule module;
    CUfunction late;
    CHECK_DRIVER(cuModuleLoadData(&module, LATE_PTX));
    CHECK_DRIVER(cuModuleGetFunction(&late, module, "late"));
    unsigned long long ns = 0;
    void *arguments[] = {&word, &ns};
    CHECK_DRIVER(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, nullptr));
    CHECK(cudaMemset(word, 0, 4));
    CHECK(cudaDeviceSynchronize());
    ns = LATE;
    CHECK_DRIVER(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, nullptr));
    CHECK(cudaFree(unrelated));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(word, 4, 7), "the kernel's module was unloaded under it");
}

// ---------------------------------------------------------------- nothing may wait for later work

Verdict persistent_kernel_and_malloc() {  // [10]
    size_t free_bytes, total;
    cudaStream_t stream = new_stream();
    volatile uint32_t *flag = pinned_alloc(64);
    *flag = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    size_t first = free_bytes / 100 * 45 & ~(size_t)0x1fffff, second = free_bytes / 100 * 75 & ~(size_t)0x1fffff;
    void *a, *b = nullptr;
    CHECK(cudaMalloc(&a, first));
    CHECK(cudaFree(a));
    spin_until<<<1, 1, 0, stream>>>(flag);
    cudaError_t error = cudaMalloc(&b, second);
    *flag = 1;
    CHECK(cudaDeviceSynchronize());
    return failing(error);
}
Verdict spin_and_destroy_texture() {  // [29] A teardown may wait for the work before the free, not for later work.
    cudaStream_t a = new_stream();
    uint32_t *words = device_alloc(SMALL), *out = device_alloc(SMALL);
    volatile uint32_t *flag = pinned_alloc(64);
    void *unrelated = device_alloc(SMALL);
    CHECK(cudaMemset(words, A & 0xff, SMALL));
    cudaTextureObject_t texture = new_texture(words, SMALL);
    read_texture<<<1, 256, 0, a>>>(texture, out, SMALL / 4, 0);
    CHECK(cudaDeviceSynchronize());
    *flag = 0;
    read_texture<<<1, 256, 0, a>>>(texture, out, SMALL / 4, LATE);
    CHECK(cudaFree(unrelated));
    spin_until<<<1, 1, 0, a>>>(flag);
    CHECK(cudaDestroyTextureObject(texture));
    *flag = 1;
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(out, SMALL, A), "wrong contents");
}
Verdict two_contexts() {  // [27] A free in one context must not wait on the device for the other.
    CUdevice device;
    CUcontext primary, other;
    volatile uint32_t *flag;
    CHECK(cudaHostAlloc((void **)&flag, 64, cudaHostAllocPortable));
    *flag = 0;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuCtxGetCurrent(&primary));
    cudaStream_t stream = new_stream();
#if CUDA_VERSION >= 13000
    CHECK_DRIVER(cuCtxCreate(&other, nullptr, 0, device));
#else
    CHECK_DRIVER(cuCtxCreate(&other, 0, device));
#endif
    CUdeviceptr p, q;
    CHECK_DRIVER(cuMemAlloc(&p, BYTES));
    CHECK_DRIVER(cuMemsetD32(p, A, WORDS));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    spin_until<<<1, 1, 0, stream>>>(flag);
    CHECK_DRIVER(cuCtxSetCurrent(other));
    CHECK_DRIVER(cuMemFree(p));
    CHECK_DRIVER(cuMemAlloc(&q, BYTES));
    CHECK_DRIVER(cuMemsetD32(q, B, WORDS));
    *flag = 1;
    std::vector<uint32_t> host(WORDS);
    CHECK_DRIVER(cuMemcpyDtoH(host.data(), q, BYTES));
    CHECK_DRIVER(cuMemFree(q));
    CHECK_DRIVER(cuCtxDestroy(other));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CHECK(cudaDeviceSynchronize());
    return ok_if(host[0] == B && host[WORDS - 1] == B, "wrong contents");
}

// ---------------------------------------------------------------- captures

struct Captured {  // a capture on `stream` that writes A into `words`
    cudaStream_t stream = new_stream();
    uint32_t *words = device_alloc(BYTES);
    Verdict finish() {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaError_t error = cudaStreamEndCapture(stream, &graph);
        if (error != cudaSuccess) return "capture died, " + failing(error);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaMemset(words, 0, BYTES));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaDeviceSynchronize());
        return ok_if(holds(words, BYTES, A), "the graph did not do its work");
    }
};
Verdict free_during_capture(cudaStreamCaptureMode mode, cudaStream_t on = nullptr) {
    Captured capture;
    if (on) capture.stream = on;
    cudaStream_t busy = new_stream();
    uint32_t *unrelated = device_alloc(BYTES);
    CHECK(cudaStreamBeginCapture(capture.stream, mode));
    fill<<<8, 256, 0, capture.stream>>>(capture.words, WORDS / 2, A, 0);
    cudaError_t freed = cudaSuccess;
    bool right = true;
    std::thread([&] {
        fill<<<8, 256, 0, busy>>>(unrelated, WORDS, A, LATE);
        freed = cudaFree(unrelated);
        if (freed != cudaSuccess) return;
        uint32_t *again;
        freed = cudaMalloc(&again, BYTES);
        if (freed != cudaSuccess) return;
        cudaStream_t other = new_stream();
        unsigned long long *wrong, count = 1;
        CHECK(cudaMallocAsync((void **)&wrong, 256, other));
        CHECK(cudaMemsetAsync(wrong, 0, 256, other));
        fill<<<8, 256, 0, other>>>(again, WORDS, B, 0);
        CHECK(cudaStreamSynchronize(busy));
        count_wrong<<<8, 256, 0, other>>>(again, WORDS, B, wrong);
        CHECK(cudaMemcpyAsync(&count, wrong, sizeof count, cudaMemcpyDeviceToHost, other));
        CHECK(cudaStreamSynchronize(other));
        right = count == 0;
    }).join();
    fill<<<8, 256, 0, capture.stream>>>(capture.words + WORDS / 2, WORDS / 2, A, 0);
    Verdict verdict = capture.finish();
    if (!right) return "FAIL the block that was freed during the capture has wrong contents";
    return name(freed) + ", " + verdict;
}
Verdict free_during_thread_local_capture() { return free_during_capture(cudaStreamCaptureModeThreadLocal); }
Verdict free_during_relaxed_capture() { return free_during_capture(cudaStreamCaptureModeRelaxed); }
// The same handle means another stream in each thread.
Verdict free_during_per_thread_capture() { return free_during_capture(cudaStreamCaptureModeThreadLocal, cudaStreamPerThread); }
// Without the library another thread's free kills a global capture; under the library it must not.
Verdict free_during_global_capture() {
    Captured capture;
    void *unrelated = device_alloc(BYTES);
    CHECK(cudaStreamBeginCapture(capture.stream, cudaStreamCaptureModeGlobal));
    fill<<<8, 256, 0, capture.stream>>>(capture.words, WORDS, A, 0);
    cudaError_t freed = cudaSuccess;
    std::thread([&] { freed = cudaFree(unrelated); }).join();
    Verdict verdict = capture.finish();
    bool lives = freed == cudaSuccess && verdict == "ok";
    printf("time: free %s, %s\n", cudaGetErrorName(freed), verdict.c_str());
    return ok_if(lives || !under_library(), "the capture died");
}
Verdict free_async_of_outside_memory_in_capture() {  // [18] the driver's own code, whatever it is
    Captured capture;
    void *plain = device_alloc(BYTES), *async;
    CHECK(cudaMallocAsync(&async, BYTES, capture.stream));
    CHECK(cudaStreamSynchronize(capture.stream));
    CHECK(cudaStreamBeginCapture(capture.stream, cudaStreamCaptureModeThreadLocal));
    fill<<<8, 256, 0, capture.stream>>>(capture.words, WORDS, A, 0);
    Verdict of_plain = failing(cudaFreeAsync(plain, capture.stream));
    Verdict of_async = failing(cudaFreeAsync(async, capture.stream));
    cudaGraph_t graph = nullptr;
    Verdict end = failing(cudaStreamEndCapture(capture.stream, &graph));
    return "plain " + of_plain + ", async " + of_async + ", end " + end;
}

// ---------------------------------------------------------------- stream-ordered memory

// [7] Without the library the dependent kernel does start early, and writes into a block still in
// use (seen on driver 580); the library promises to prevent this.
Verdict programmatic_launch_after_async_reuse() {
    cudaStream_t stream = new_stream();
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    int wrong = 0;
    for (int round = 0; round < 4; round++) {
        uint32_t *p, *q;
        CHECK(cudaMallocAsync((void **)&p, BYTES, stream));
        fill<<<8, 256, 0, stream>>>(p, WORDS, A, LATE);
        CHECK(cudaFreeAsync(p, stream));
        CHECK(cudaMallocAsync((void **)&q, BYTES, stream));
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = 8;
        config.blockDim = 256;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, fill, (volatile uint32_t *)q, WORDS, B, 0ull));
        CHECK(cudaStreamSynchronize(stream));
        wrong += !holds(q, BYTES, B);
        CHECK(cudaFreeAsync(q, stream));
    }
    printf("time: %d of 4 rounds wrong\n", wrong);
    return ok_if(wrong == 0 || !under_library(), "the earlier kernel wrote into the block's next life");
}

// [74] Without the library the free has waited for the kernel, and the trim releases what the pool
// keeps.
Verdict trim_behind_a_free() {
    cudaStream_t stream = new_stream();
    void *other = device_alloc(SMALL), *block;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    unsigned long long value = ~0ull;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
    CHECK(cudaMallocFromPoolAsync(&block, 64 << 20, pool, stream));
    fill<<<1, 1, 0, stream>>>((uint32_t *)block, 1, A, LATE);
    CHECK(cudaFreeAsync(block, stream));
    CHECK(cudaFree(other));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &value));
    return "keeps " + std::to_string(value >> 20) + " MiB";
}

// ---------------------------------------------------------------- invalid frees

Verdict async_double_free() {
    cudaStream_t stream = new_stream();
    void *p;
    CHECK(cudaMallocAsync(&p, 1 << 20, stream));
    CHECK(cudaFreeAsync(p, stream));
    Verdict twice = failing(cudaFreeAsync(p, stream)), plainly = failing(cudaFree(p));
    CHECK(cudaDeviceSynchronize());
    return twice + ", " + plainly;
}
// Without the library, a second free of a cudaMalloc pointer that cudaFreeAsync has freed can end
// the process (seen on driver 580 with two in a row), so it is checked under the library only.
Verdict crossed_double_free() {
    if (!under_library()) return "ok";
    cudaStream_t stream = new_stream();
    void *p = device_alloc(1 << 20);
    CHECK(cudaFreeAsync(p, stream));
    cudaError_t again = cudaFreeAsync(p, stream);
    cudaError_t plainly = cudaFree(p);
    cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    return ok_if(again == cudaErrorInvalidValue && plainly == cudaErrorInvalidValue, "a block was freed twice");
}

// ---------------------------------------------------------------- processes

Verdict work_in_this_process() {
    load_kernels();
    uint32_t *p = device_alloc(BYTES), *q;
    fill<<<8, 256>>>(p, WORDS, A, LATE / 5);
    CHECK(cudaFree(p));
    q = device_alloc(BYTES);
    cudaStream_t stream = new_stream();
    fill<<<8, 256, 0, stream>>>(q, WORDS, B, 0);
    CHECK(cudaDeviceSynchronize());
    bool good = holds(q, BYTES, B);
    CHECK(cudaFree(q));
    return ok_if(good, "wrong contents");
}
// Runs `body` in a forked child, which returns its verdict through a pipe.
Verdict in_child(std::function<Verdict()> body) {
    int ends[2];
    if (pipe(ends)) return "FAIL pipe";
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(15);
        Verdict verdict = body();
        (void)!write(ends[1], verdict.data(), verdict.size());
        _exit(0);
    }
    close(ends[1]);
    char text[300];
    ssize_t got, length = 0;
    while ((got = read(ends[0], text + length, sizeof text - length)) > 0) length += got;
    int status;
    waitpid(child, &status, 0);
    return std::string(text, length) + (WIFSIGNALED(status) ? " killed" : "");
}
Verdict fork_before_init() {  // [24]
    Verdict child = in_child(work_in_this_process);
    return "child " + child + ", parent " + work_in_this_process();
}
Verdict fork_after_init() {  // [24]
    Verdict before = work_in_this_process();
    void *p = device_alloc(BYTES);
    Verdict child = in_child([p] {
        void *q;
        Verdict allocated = name(cudaMalloc(&q, BYTES));
        return "malloc " + allocated + ", free " + name(cudaFree(p));
    });
    CHECK(cudaFree(p));
    return "before " + before + ", child " + child + ", after " + work_in_this_process();
}

// ---------------------------------------------------------------- the list

const Case HAZARDS[] = {
#define H(group, function, ...) {group, #function, function, ##__VA_ARGS__}
    H("visible", pinned_in_struct), H("visible", copy_to_managed), H("visible", copy_from_managed),
    H("visible", destroy_texture), H("visible", unload_module),
    H("deadlock", spin_and_destroy_texture), H("deadlock", two_contexts),
    H("memory", persistent_kernel_and_malloc),
    H("capture", free_during_thread_local_capture), H("capture", free_during_relaxed_capture), H("capture", free_during_global_capture),
    H("capture", free_during_per_thread_capture), H("capture", free_async_of_outside_memory_in_capture),
    H("async", programmatic_launch_after_async_reuse), H("pool", trim_behind_a_free),
    H("frees", async_double_free), H("frees", crossed_double_free),
    H("process", fork_before_init, true), H("process", fork_after_init, true),
#undef H
};

int main(int argc, char **argv) { return run_cases(HAZARDS, "hazards", argc, argv); }
