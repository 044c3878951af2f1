// nvcc: -lcuda
// Programs that break careless versions of the freeing rules. Each is legal CUDA, or common in the wild, and
// works natively; the number in brackets is its rule's in the project's list of hazards.
//
//   hazards                 all of them
//   hazards NAME|GROUP...   only these
//   hazards --list
#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cases.h"

constexpr unsigned long long LATE = 15000000;  // ns
constexpr size_t SMALL = 64 << 10, BYTES = 4 << 20, WORDS = BYTES / 4;

// ---------------------------------------------------------------- visibility: the host looks after a free

Verdict read_after_free(uint32_t *device_view, volatile uint32_t *host_view) {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    *host_view = 0;
    fill<<<1, 1, 0, stream>>>(device_view, 1, 7, LATE);
    CHECK(cudaFree(unrelated));
    return ok_if(*host_view == 7, "the host looked before the kernel had written");
}
Verdict pinned_write() {
    uint32_t *word = pinned_alloc(4096);
    return read_after_free(word, word);
}
Verdict pinned_interior_write() {
    uint32_t *words = pinned_alloc(1 << 20);
    return read_after_free(words + 100000, words + 100000);
}
Verdict registered_write() {
    uint32_t *word = (uint32_t *)aligned_alloc(4096, 4096);
    CHECK(cudaHostRegister(word, 4096, cudaHostRegisterDefault));
    return read_after_free(word, word);
}
Verdict mapped_write() {
    void *host, *device;
    CHECK(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    return read_after_free((uint32_t *)device, (uint32_t *)host);
}
Verdict managed_write() {
    void *managed;
    CHECK(cudaMallocManaged(&managed, 4096));
    return read_after_free((uint32_t *)managed, (uint32_t *)managed);
}
__managed__ uint32_t managed_word;
__global__ void fill_managed_word(uint32_t value, unsigned long long ns) {
    wait_ns(ns);
    managed_word = value;
}
Verdict managed_variable() {
    cudaStream_t stream = new_stream();
    fill_managed_word<<<1, 1, 0, stream>>>(0, 0);
    CHECK(cudaDeviceSynchronize());
    void *unrelated = device_alloc(SMALL);
    fill_managed_word<<<1, 1, 0, stream>>>(7, LATE);
    CHECK(cudaFree(unrelated));
    return ok_if(managed_word == 7, "the host looked before the kernel had written");
}
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
__global__ void fill_through_table(uint32_t **table, unsigned long long ns) {
    wait_ns(ns);
    *(volatile uint32_t *)table[0] = 7;
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
    return ok_if(*word == 7, "the host looked before the kernel had written");
}
// [28] A pinned address that reaches the GPU inside copied data: of our modes only strict sees it,
// by waiting always.
Verdict pinned_in_copied_data() {
    cudaStream_t stream = new_stream();
    volatile uint32_t *word = pinned_alloc(4096);
    uint32_t **table = device_alloc<uint32_t *>(256);
    CHECK(cudaMemcpy(table, (const void *)&word, sizeof word, cudaMemcpyHostToDevice));
    fill_through_table<<<1, 1, 0, stream>>>(table, 0);
    CHECK(cudaDeviceSynchronize());
    *word = 0;
    void *unrelated = device_alloc(SMALL);
    fill_through_table<<<1, 1, 0, stream>>>(table, LATE);
    CHECK(cudaFree(unrelated));
    return ok_if(*word == 7, "the host looked before the kernel had written");
}
Verdict pinned_in_graph() {
    cudaStream_t stream = new_stream();
    volatile uint32_t *word = pinned_alloc(4096);
    void *unrelated = device_alloc(SMALL);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fill<<<1, 1, 0, stream>>>(word, 1, 7, LATE);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    *word = 0;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaFree(unrelated));
    return ok_if(*word == 7, "the host looked before the graph had written");
}
// Submits something behind a delay, frees an unrelated block, then asks what the host sees.
Verdict look_after(std::function<void(cudaStream_t)> submit, std::function<bool()> arrived) {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    delay<<<1, 1, 0, stream>>>(LATE);
    submit(stream);
    CHECK(cudaFree(unrelated));
    return ok_if(arrived(), "the host looked before the work was done");
}
Verdict copy_to_pinned() {
    uint32_t *source = device_alloc(BYTES), *host = pinned_alloc(BYTES);
    CHECK(cudaMemset(source, A & 0xff, BYTES));
    return look_after([&](cudaStream_t s) { CHECK(cudaMemcpyAsync(host, source, BYTES, cudaMemcpyDeviceToHost, s)); },
                      [&] { return host[0] == A && host[WORDS - 1] == A; });
}
Verdict copy_2d_to_pinned() {
    uint32_t *source = device_alloc(BYTES), *host = pinned_alloc(BYTES);
    CHECK(cudaMemset(source, A & 0xff, BYTES));
    return look_after(
        [&](cudaStream_t s) { CHECK(cudaMemcpy2DAsync(host, 4096, source, 4096, 4096, BYTES / 4096, cudaMemcpyDeviceToHost, s)); },
        [&] { return host[0] == A && host[WORDS - 1] == A; });
}
Verdict memset_of_pinned() {
    uint32_t *host = pinned_alloc(BYTES);
    return look_after([&](cudaStream_t s) { CHECK(cudaMemsetAsync(host, A & 0xff, BYTES, s)); },
                      [&] { return ((volatile uint32_t *)host)[WORDS - 1] == A; });
}
Verdict value_to_pinned() {
    volatile uint32_t *host = pinned_alloc(4096);
    *host = 0;
    return look_after([&](cudaStream_t s) { CHECK_DRIVER(cuStreamWriteValue32((CUstream)s, (CUdeviceptr)host, 7, 0)); },
                      [&] { return *host == 7; });
}
std::atomic<int> host_function_ran{0};
void CUDART_CB host_function(void *) { host_function_ran = 1; }
void CUDART_CB host_callback(cudaStream_t, cudaError_t, void *) { host_function_ran = 1; }
Verdict launched_host_function() {
    return look_after([](cudaStream_t s) { CHECK(cudaLaunchHostFunc(s, host_function, nullptr)); }, [] { return host_function_ran == 1; });
}
Verdict stream_callback() {
    return look_after([](cudaStream_t s) { CHECK(cudaStreamAddCallback(s, host_callback, nullptr, 0)); }, [] { return host_function_ran == 1; });
}
Verdict graph_host_node() {
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaLaunchHostFunc(stream, host_function, nullptr));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return look_after([&](cudaStream_t s) { CHECK(cudaGraphLaunch(exec, s)); }, [] { return host_function_ran == 1; });
}
Verdict refill_pinned() {
    uint32_t *target = device_alloc(BYTES), *host = pinned_alloc(BYTES);
    for (size_t i = 0; i < WORDS; i++) host[i] = A;
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    delay<<<1, 1, 0, stream>>>(LATE);
    CHECK(cudaMemcpyAsync(target, host, BYTES, cudaMemcpyHostToDevice, stream));
    CHECK(cudaFree(unrelated));
    for (size_t i = 0; i < WORDS; i++) host[i] = B;
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(target, BYTES, A), "the host refilled what was still being read");
}

// ---------------------------------------------------------------- events and queries asked once

Verdict timed(std::function<cudaError_t(cudaEvent_t, cudaEvent_t, cudaStream_t)> ask) {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start, stream));
    delay<<<1, 1, 0, stream>>>(LATE);
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaFree(unrelated));
    return failing(ask(start, stop, stream));
}
Verdict elapsed_time() {
    return timed([](cudaEvent_t start, cudaEvent_t stop, cudaStream_t) {
        float ms;
        return cudaEventElapsedTime(&ms, start, stop);
    });
}
Verdict event_query() {
    return timed([](cudaEvent_t, cudaEvent_t stop, cudaStream_t) { return cudaEventQuery(stop); });
}
Verdict stream_query() {
    return timed([](cudaEvent_t, cudaEvent_t, cudaStream_t stream) { return cudaStreamQuery(stream); });
}

// ---------------------------------------------------------------- teardown behind a free

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
Verdict unmap() {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&handle, BYTES, &properties, 0));
    CHECK_DRIVER(cuMemMap(address, BYTES, 0, handle, 0));
    CHECK_DRIVER(cuMemSetAccess(address, BYTES, &access, 1));
    fill<<<8, 256, 0, stream>>>((uint32_t *)address, WORDS, A, LATE);
    CHECK(cudaFree(unrelated));
    CHECK_DRIVER(cuMemUnmap(address, BYTES));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemAddressFree(address, BYTES));
    return ok_if(cudaDeviceSynchronize() == cudaSuccess, "the kernel wrote unmapped memory");
}
Verdict unregister() {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    volatile uint32_t *word = (uint32_t *)aligned_alloc(4096, 4096);
    CHECK(cudaHostRegister((void *)word, 4096, cudaHostRegisterDefault));
    *word = 0;
    fill<<<1, 1, 0, stream>>>(word, 1, 7, LATE);
    CHECK(cudaFree(unrelated));
    CHECK(cudaHostUnregister((void *)word));
    return ok_if(*word == 7 && cudaDeviceSynchronize() == cudaSuccess, "the kernel wrote unregistered memory");
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
Verdict reset_device() {
    uint32_t *live = device_alloc(BYTES), *freed = device_alloc(BYTES);
    CHECK(cudaFree(freed));
    CHECK(cudaDeviceReset());
    uint32_t *again = device_alloc(BYTES);
    CHECK(cudaMemset(again, A & 0xff, BYTES));
    bool good = holds(again, BYTES, A);
    CHECK(cudaFree(again));
    (void)live;
    return ok_if(good, "memory after a device reset is wrong");
}
Verdict destroy_context() {
    CUdevice device;
    CUcontext primary, other;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuCtxGetCurrent(&primary));
    for (int round = 0; round < 3; round++) {
#if CUDA_VERSION >= 13000
        CHECK_DRIVER(cuCtxCreate(&other, nullptr, 0, device));
#else
        CHECK_DRIVER(cuCtxCreate(&other, 0, device));
#endif
        CUdeviceptr live, freed;
        CHECK_DRIVER(cuMemAlloc(&live, BYTES));
        CHECK_DRIVER(cuMemAlloc(&freed, BYTES));
        CHECK_DRIVER(cuMemsetD32(live, A, WORDS));
        CHECK_DRIVER(cuMemFree(freed));
        CHECK_DRIVER(cuCtxDestroy(other));
        CHECK_DRIVER(cuCtxSetCurrent(primary));
        uint32_t *block = device_alloc(BYTES);
        CHECK(cudaMemset(block, B & 0xff, BYTES));
        if (!holds(block, BYTES, B)) return "FAIL memory after a context's end is wrong";
        CHECK(cudaFree(block));
    }
    return "ok";
}

// ---------------------------------------------------------------- nothing may wait for later work

Verdict spin_behind_free() {  // [9]
    cudaStream_t a = new_stream(), b = new_stream();
    uint32_t *flag = device_alloc(256), *busy = device_alloc(BYTES);
    CHECK(cudaMemset(flag, 0, 256));
    CHECK(cudaDeviceSynchronize());
    void *freed = device_alloc(BYTES);
    fill<<<8, 256, 0, a>>>(busy, WORDS, A, LATE);
    CHECK(cudaFree(freed));
    spin_until<<<1, 1, 0, a>>>(flag);
    uint32_t *again = device_alloc(BYTES);
    fill<<<8, 256, 0, b>>>(again, WORDS, B, 0);
    set_word<<<1, 1, 0, b>>>(flag, 1);
    CHECK(cudaStreamSynchronize(b));
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(again, BYTES, B), "wrong contents");
}
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
Verdict spin_and_free_async_pointer() {  // [20]
    cudaStream_t a = new_stream(), b = new_stream();
    uint32_t *flag = device_alloc(256);
    void *async;
    CHECK(cudaMemset(flag, 0, 256));
    CHECK(cudaMallocAsync(&async, BYTES, b));
    CHECK(cudaDeviceSynchronize());
    spin_until<<<1, 1, 0, a>>>(flag);
    CHECK(cudaFree(async));
    set_word<<<1, 1, 0, b>>>(flag, 1);
    CHECK(cudaDeviceSynchronize());
    return "ok";
}
Verdict spin_and_malloc_behind_async_free() {  // [31]
    cudaStream_t a = new_stream(), b = new_stream();
    uint32_t *flag = device_alloc(256), *q;
    void *p;
    CHECK(cudaMemset(flag, 0, 256));
    CHECK(cudaMallocAsync(&p, BYTES, a));
    CHECK(cudaDeviceSynchronize());
    fill<<<8, 256, 0, a>>>((uint32_t *)p, WORDS, A, 0);
    spin_until<<<1, 1, 0, a>>>(flag);
    CHECK(cudaFreeAsync(p, a));
    q = device_alloc(BYTES);
    fill<<<8, 256, 0, b>>>(q, WORDS, B, 0);
    set_word<<<1, 1, 0, b>>>(flag, 1);
    CHECK(cudaDeviceSynchronize());
    return ok_if(holds(q, BYTES, B), "wrong contents");
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
Verdict query_while_a_free_waits() {  // [29] One thread's free waits; another polls, and only then lets the kernel end.
    cudaStream_t a = new_stream(), b = new_stream();
    volatile uint32_t *flag = pinned_alloc(64);
    void *unrelated = device_alloc(BYTES);
    cudaEvent_t done;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventRecord(done, b));
    CHECK(cudaDeviceSynchronize());
    *flag = 0;
    spin_until<<<1, 1, 0, a>>>(flag);
    std::thread freeing([&] { CHECK(cudaFree(unrelated)); });
    sleep_ms(10);
    cudaError_t event = cudaEventQuery(done), stream = cudaStreamQuery(a);
    *flag = 1;
    freeing.join();
    CHECK(cudaDeviceSynchronize());
    return "event " + name(event) + ", stream " + failing(stream);
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
// One handle means another stream in each thread.
Verdict free_during_per_thread_capture() { return free_during_capture(cudaStreamCaptureModeThreadLocal, cudaStreamPerThread); }
// Natively another thread's free kills a global capture; under the library it must not.
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
Verdict abandoned_capture() {  // [16]
    for (int round = 0; round < 3; round++) {
        cudaStream_t stream = new_stream();
        uint32_t *words = device_alloc(BYTES);
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        fill<<<8, 256, 0, stream>>>(words, WORDS, A, 0);
        cudaError_t destroyed = cudaStreamDestroy(stream);
        cudaGetLastError();
        if (destroyed != cudaSuccess) return "destroying it: " + name(destroyed);
        CHECK(cudaMemset(words, B & 0xff, BYTES));
        if (!holds(words, BYTES, B)) return "FAIL wrong contents";
        CHECK(cudaFree(words));
    }
    return "ok";
}
Verdict query_legacy_during_capture() {  // [16] cudaStreamIsCapturing(legacy) may answer 906 and must leave the capture alone.
    Captured capture;
    capture.stream = new_stream(cudaStreamDefault);
    void *unrelated = device_alloc(BYTES);
    CHECK(cudaStreamBeginCapture(capture.stream, cudaStreamCaptureModeRelaxed));
    fill<<<8, 256, 0, capture.stream>>>(capture.words, WORDS, A, 0);
    cudaStreamCaptureStatus status;
    Verdict asked = failing(cudaStreamIsCapturing(cudaStreamLegacy, &status));
    std::thread([&] { CHECK(cudaFree(unrelated)); }).join();
    return asked + ", " + capture.finish();
}
Verdict malloc_in_relaxed_capture() {
    Captured capture;
    void *before = device_alloc(BYTES), *during;
    CHECK(cudaStreamBeginCapture(capture.stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMalloc(&during, BYTES));
    fill<<<8, 256, 0, capture.stream>>>(capture.words, WORDS, A, 0);
    CHECK(cudaFree(before));
    Verdict verdict = capture.finish();
    CHECK(cudaFree(during));
    return verdict;
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

// [7] Natively the dependent kernel does start early, into the block's earlier life (seen on driver
// 580); the library promises not to let it.
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
Verdict merged_neighbours() {  // [31] Two neighbours freed on two streams; a request that gets both must wait for both.
    cudaStream_t a = new_stream(), b = new_stream();
    int wrong = 0;
    for (int round = 0; round < 8; round++) {
        uint32_t *p[2], *q;
        CHECK(cudaMallocAsync((void **)&p[0], BYTES, a));
        CHECK(cudaMallocAsync((void **)&p[1], BYTES, a));
        CHECK(cudaDeviceSynchronize());
        fill<<<8, 256, 0, a>>>(p[round & 1], WORDS, A, LATE / 3);
        CHECK(cudaFreeAsync(p[round & 1], a));
        fill<<<8, 256, 0, b>>>(p[!(round & 1)], WORDS, A, 0);
        CHECK(cudaFreeAsync(p[!(round & 1)], b));
        CHECK(cudaMallocAsync((void **)&q, 2 * BYTES, b));
        fill<<<8, 256, 0, b>>>(q, 2 * WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(q, 2 * BYTES, B);
        CHECK(cudaFreeAsync(q, b));
    }
    return ok_if(wrong == 0, "a merged block was handed out too early");
}
Verdict crossed_frees() {
    cudaStream_t a = new_stream(), b = new_stream();
    int wrong = 0;
    for (int round = 0; round < 8; round++) {
        uint32_t *plain = device_alloc(BYTES), *async, *again;
        fill<<<8, 256, 0, a>>>(plain, WORDS, A, LATE / 3);
        CHECK(cudaFreeAsync(plain, a));
        again = device_alloc(BYTES);
        fill<<<8, 256, 0, b>>>(again, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(again, BYTES, B);
        CHECK(cudaFree(again));
        CHECK(cudaMallocAsync((void **)&async, BYTES, a));
        fill<<<8, 256, 0, a>>>(async, WORDS, A, LATE / 3);
        CHECK(cudaStreamSynchronize(a));
        CHECK(cudaFree(async));
        again = device_alloc(BYTES);
        fill<<<8, 256, 0, b>>>(again, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(again, BYTES, B);
        CHECK(cudaFree(again));
    }
    return ok_if(wrong == 0, "wrong contents");
}
Verdict pool_sized_by_malloc_and_free() {  // [19] kokkos#7032
    cudaStream_t stream = new_stream();
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull, reserved = 0, used = ~0ull;
    void *p;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMallocAsync(&p, 64 << 20, stream));
    CHECK(cudaFreeAsync(p, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    return ok_if(used == 0 && reserved >= 64 << 20, "the pool's attributes do not show what was allocated from it");
}
Verdict pool_used_and_trim() {  // [19]
    cudaStream_t stream = new_stream();
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull, used = 0, high = 0, after = ~0ull, reserved = ~0ull;
    void *p;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));  // the program looks into the pool
    CHECK(cudaMallocAsync(&p, 32 << 20, stream));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaFreeAsync(p, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &after));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    char text[160];
    snprintf(text, sizeof text, "used %llu MiB, high %llu MiB, after %llu, reserved after trim %llu", used >> 20, high >> 20, after, reserved);
    return text;
}
Verdict pool_of_its_own() {  // [19] cudaDeviceSetMemPool
    cudaStream_t stream = new_stream();
    cudaMemPool_t pool, current;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    void *before, *p, *explicitly;
    unsigned long long used = 0;
    CHECK(cudaMallocAsync(&before, BYTES, stream));
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    CHECK(cudaMallocAsync(&p, 32 << 20, stream));
    CHECK(cudaMallocFromPoolAsync(&explicitly, 32 << 20, pool, stream));
    CHECK(cudaFreeAsync(before, stream));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaFreeAsync(p, stream));
    CHECK(cudaFreeAsync(explicitly, stream));
    CHECK(cudaStreamSynchronize(stream));
    char text[120];
    snprintf(text, sizeof text, "same pool %d, used %llu MiB", current == pool, used >> 20);
    return text;
}

// ---------------------------------------------------------------- frees that are wrong, and questions

Verdict double_free() {
    void *p = device_alloc(1000), *large = device_alloc(33 << 20);
    Verdict first = failing(cudaFree(p)), second = failing(cudaFree(p));
    CHECK(cudaFree(large));
    return first + ", " + second + ", large " + failing(cudaFree(large));
}
Verdict interior_free() {
    char *p = device_alloc<char>(1000), *large = device_alloc<char>(33 << 20);
    Verdict small = failing(cudaFree(p + 256)), big = failing(cudaFree(large + (4 << 20)));
    CHECK(cudaFree(p));
    CHECK(cudaFree(large));
    return small + ", " + big;
}
Verdict wild_free() {
    int on_stack;
    return failing(cudaFree((void *)0x12345000)) + ", stack " + failing(cudaFree(&on_stack)) + ", null " + failing(cudaFree(nullptr));
}
Verdict async_double_free() {
    cudaStream_t stream = new_stream();
    void *p;
    CHECK(cudaMallocAsync(&p, 1 << 20, stream));
    CHECK(cudaFreeAsync(p, stream));
    Verdict twice = failing(cudaFreeAsync(p, stream)), plainly = failing(cudaFree(p));
    CHECK(cudaDeviceSynchronize());
    return twice + ", " + plainly;
}
// Natively a second free of a cudaMalloc pointer that cudaFreeAsync has freed can end the process
// (seen on driver 580 with two in a row), so it is checked under the library only.
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
Verdict odd_sizes() {
    void *p = (void *)1, *q = (void *)1;
    CUdeviceptr d = 1;
    Verdict zero = failing(cudaMalloc(&p, 0)), huge = failing(cudaMalloc(&q, (size_t)1 << 60)), all = failing(cudaMalloc(&q, (size_t)-1));
    Verdict no_pointer = failing(cudaMalloc((void **)nullptr, 256)), driver_zero = code(cuMemAlloc(&d, 0));
    return "0: " + zero + (p ? " not null" : " null") + ", 2^60: " + huge + ", 2^64-1: " + all + (q == (void *)1 ? " untouched" : " touched") +
           ", no pointer: " + no_pointer + ", driver 0: " + driver_zero + ", driver free 0: " + code(cuMemFree(0));
}
Verdict address_range() {
    CUdeviceptr one = (CUdeviceptr)device_alloc(1), large = (CUdeviceptr)device_alloc((33 << 20) + 5), base;
    size_t size;
    std::string text;
    CHECK_DRIVER(cuMemGetAddressRange(&base, &size, one));
    text += std::to_string(base - one) + " " + std::to_string(size);
    CHECK_DRIVER(cuMemGetAddressRange(&base, &size, large + (5 << 20)));
    text += ", " + std::to_string(base - large) + " " + std::to_string(size);
    CHECK_DRIVER(cuMemFree(one));
    CHECK_DRIVER(cuMemFree(large));
    return text + ", freed " + code(cuMemGetAddressRange(&base, &size, one)) + " " + code(cuMemGetAddressRange(&base, &size, large));
}
Verdict free_in_callback() {  // [33]
    static void *p;
    static cudaError_t freed, allocated;
    p = device_alloc(BYTES);
    cudaStream_t stream = new_stream();
    CHECK(cudaLaunchHostFunc(
        stream,
        [](void *) {
            void *q;
            freed = cudaFree(p);
            allocated = cudaMalloc(&q, 3 << 20);
        },
        nullptr));
    CHECK(cudaDeviceSynchronize());
    Verdict later = failing(cudaFree(p));
    printf("time: in the callback cudaMalloc %s\n", cudaGetErrorName(allocated));
    return "in the callback " + name(freed) + ", later " + later;
}

// ---------------------------------------------------------------- processes and sticky errors

__global__ void fault() { *(volatile int *)8 = 1; }
Verdict fault_then_free() {  // [25]
    void *p = device_alloc(BYTES);
    fault<<<1, 1>>>();
    return name(cudaFree(p));
}
Verdict free_after_known_fault() {
    void *p = device_alloc(BYTES), *q;
    fault<<<1, 1>>>();
    Verdict synchronised = name(cudaDeviceSynchronize());
    Verdict freed = name(cudaFree(p)), allocated = name(cudaMalloc(&q, BYTES)), async = name(cudaMallocAsync(&q, BYTES, 0));
    return synchronised + ", free " + freed + ", malloc " + allocated + ", async " + async;
}
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
// Runs `body` in a forked child; its verdict comes back through a pipe.
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

// ---------------------------------------------------------------- [41] [44] reached in uncommon ways

__global__ void fill_at(volatile uint32_t *base, long offset, uint32_t value, unsigned long long ns) {
    wait_ns(ns);
    base[offset] = value;
}
struct __attribute__((packed)) Packed {
    char tag;
    uint32_t *word;
};
__global__ void fill_packed(Packed packed, uint32_t value, unsigned long long ns) {
    wait_ns(ns);
    *(volatile uint32_t *)packed.word = value;
}
__global__ void fetch(volatile uint32_t *target, cudaTextureObject_t texture, unsigned long long ns) {
    wait_ns(ns);
    *target = tex1Dfetch<uint32_t>(texture, 0);
}
// Loads a kernel before it counts: its first launch may wait for the device, and hide what is
// tested.
template <class Kernel>
void load(Kernel kernel) {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, kernel));
}
// As a reverse iterator has it.
Verdict pinned_by_its_end() {
    load(fill_at);
    uint32_t *words = pinned_alloc(4096);
    words[1023] = 0;
    return look_after([&](cudaStream_t s) { fill_at<<<1, 1, 0, s>>>(words + 1024, -1, 7, 0); },
                      [&] { return ((volatile uint32_t *)words)[1023] == 7; });
}
Verdict registered_by_its_end() {
    load(fill_at);
    uint32_t *words = (uint32_t *)aligned_alloc(4096, 4096);
    CHECK(cudaHostRegister(words, 4096, cudaHostRegisterDefault));
    words[1023] = 0;
    return look_after([&](cudaStream_t s) { fill_at<<<1, 1, 0, s>>>(words + 1024, -1, 7, 0); },
                      [&] { return ((volatile uint32_t *)words)[1023] == 7; });
}
// As an array has it whose first element is number one.
Verdict pinned_by_a_base_before_it() {
    load(fill_at);
    uint32_t *words = pinned_alloc(4096);
    words[0] = 0;
    return look_after([&](cudaStream_t s) { fill_at<<<1, 1, 0, s>>>(words - 1, 1, 7, 0); },
                      [&] { return ((volatile uint32_t *)words)[0] == 7; });
}
Verdict pinned_in_a_packed_struct() {
    load(fill_packed);
    uint32_t *words = pinned_alloc(4096);
    words[0] = 0;
    Packed packed = {'x', words};
    return look_after([&](cudaStream_t s) { fill_packed<<<1, 1, 0, s>>>(packed, 7, 0); },
                      [&] { return ((volatile uint32_t *)words)[0] == 7; });
}
Verdict pinned_behind_a_texture() {
    uint32_t *words = pinned_alloc(SMALL), *target = device_alloc(SMALL);
    words[0] = 1;
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = words;
    resource.res.linear.desc = cudaCreateChannelDesc<uint32_t>();
    resource.res.linear.sizeInBytes = SMALL;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    load(fetch);
    look_after([&](cudaStream_t s) { fetch<<<1, 1, 0, s>>>(target, texture, 0); }, [] { return true; });
    ((volatile uint32_t *)words)[0] = 2;
    return ok_if(holds(target, 4, 1), "the host refilled what was still being read");
}
Verdict copy_2d_to_pinned_at_an_offset() {
    uint32_t *source = device_alloc(SMALL), *host = pinned_alloc(SMALL);
    CHECK(cudaMemset(source, A & 0xff, SMALL));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = (CUdeviceptr)source, copy.srcPitch = 4096;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = (char *)host - 3 * 4096, copy.dstY = 3, copy.dstPitch = 4096;
    copy.WidthInBytes = 4096, copy.Height = SMALL / 4096;
    return look_after([&](cudaStream_t s) { CHECK_DRIVER(cuMemcpy2DAsync(&copy, s)); },
                      [&] { return host[0] == A && host[SMALL / 4 - 1] == A; });
}
#if CUDA_VERSION >= 12080
void batch(CUdeviceptr to, CUdeviceptr from, size_t bytes, cudaStream_t stream) {
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
#if CUDA_VERSION >= 13000
    CHECK_DRIVER(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream));
#else
    size_t failed;
    CHECK_DRIVER(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, &failed, stream));
#endif
}
Verdict batch_to_pageable() {
    uint32_t *source = device_alloc(SMALL), *host = (uint32_t *)calloc(1, SMALL);
    CHECK(cudaMemset(source, A & 0xff, SMALL));
    return look_after([&](cudaStream_t s) { batch((CUdeviceptr)host, (CUdeviceptr)source, SMALL, s); },
                      [&] { return ((volatile uint32_t *)host)[SMALL / 4 - 1] == A; });
}
Verdict batch_from_pageable() {
    uint32_t *target = device_alloc(SMALL), *host = (uint32_t *)malloc(SMALL);
    memset(host, A & 0xff, SMALL);
    look_after([&](cudaStream_t s) { batch((CUdeviceptr)target, (CUdeviceptr)host, SMALL, s); }, [] { return true; });
    memset(host, B & 0xff, SMALL);
    return ok_if(holds(target, SMALL, A), "the host refilled what was still being read");
}
#endif
// The mapping stays, and less may be done with it.
Verdict less_access(CUmemAccess_flags less) {
    cudaStream_t stream = new_stream();
    void *unrelated = device_alloc(SMALL);
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address;
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    CHECK_DRIVER(cuMemCreate(&memory, BYTES, &properties, 0));
    CHECK_DRIVER(cuMemMap(address, BYTES, 0, memory, 0));
    CHECK_DRIVER(cuMemSetAccess(address, BYTES, &access, 1));
    fill<<<8, 256, 0, stream>>>((uint32_t *)address, WORDS, A, LATE);
    CHECK(cudaFree(unrelated));
    access.flags = less;
    Verdict verdict = code(cuMemSetAccess(address, BYTES, &access, 1)) + " ";
    CHECK(cudaDeviceSynchronize());
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(cuMemSetAccess(address, BYTES, &access, 1));
    return verdict + ok_if(holds((uint32_t *)address, BYTES, A), "the kernel did not write");
}
Verdict access_taken_away() { return less_access(CU_MEM_ACCESS_FLAGS_PROT_NONE); }
Verdict access_cut_to_reading() { return less_access(CU_MEM_ACCESS_FLAGS_PROT_READ); }

// [45] Asked first when there is something to count, and to the byte.
Verdict numbers_of(bool threshold) {
    cudaStream_t stream = new_stream();
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long value = ~0ull;
    if (threshold) CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
    Verdict verdict;
    auto look = [&](const char *when) {
        verdict += when;
        for (auto which : {cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh}) {
            CHECK(cudaMemPoolGetAttribute(pool, which, &value));
            verdict += " " + std::to_string(value);
        }
        verdict += ", ";
    };
    auto alloc = [&](size_t bytes) {
        void *block;
        CHECK(cudaMallocAsync(&block, bytes, stream));
        return block;
    };
    void *large = alloc(100 << 20), *small = alloc(1000), *middle = alloc((40 << 20) + 3);
    look("three:");
    CHECK(cudaFreeAsync(large, stream));
    CHECK(cudaStreamSynchronize(stream));
    look("one freed:");
    for (auto which : {cudaMemPoolAttrReservedMemHigh, cudaMemPoolAttrUsedMemHigh}) {
        value = 0;
        CHECK(cudaMemPoolSetAttribute(pool, which, &value));
    }
    value = 5;
    verdict += failing(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value)) + " ";
    look("reset:");
    CHECK(cudaFree(small));
    CHECK(cudaDeviceSynchronize());
    look("plainly freed:");
    void *again = alloc(2 << 20);
    look("one more:");
    CHECK(cudaFreeAsync(middle, stream));
    CHECK(cudaFreeAsync(again, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    look("trimmed:");
    return verdict;
}
Verdict pool_numbers() { return numbers_of(false); }
Verdict pool_numbers_with_a_threshold() { return numbers_of(true); }

// [74] Natively the free has waited for the kernel, and what the pool keeps goes back.
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

// What several threads use, each of which has freed as much before.
Verdict pool_used_by_threads() {
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    auto used = [&] {
        unsigned long long value = ~0ull;
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
        return std::to_string(value >> 10);
    };
    void *kept[4];
    cudaStream_t streams[4];
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            CHECK(cudaStreamCreate(&streams[i]));
            for (size_t kib : {64, 3000, 500, 64, 1 << 15, 64}) {
                void *block;
                CHECK(cudaMallocAsync(&block, kib << 10, streams[i]));
                CHECK(cudaFreeAsync(block, streams[i]));
            }
            CHECK(cudaMallocAsync(&kept[i], 700 << 10, streams[i]));
            CHECK(cudaStreamSynchronize(streams[i]));
        });
    for (auto &thread : threads) thread.join();
    Verdict verdict = "kept " + used();
    for (int i = 0; i < 4; i++) {
        CHECK(cudaFreeAsync(kept[i], streams[i]));
        CHECK(cudaStreamSynchronize(streams[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    return verdict + ", then " + used();
}

// [71] A device has an address of its own for registered memory, or seems to.
Verdict write_by_another_address() {
    uint32_t *word = pinned_alloc(4096), *view;
    CHECK_DRIVER(cuPointerGetAttribute(&view, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)word));
    return read_after_free(view, word);
}
// [72] A synchronous copy, which the driver may not wait for: to it, managed memory is a device's.
Verdict copy_late(CUdeviceptr to, CUdeviceptr from, const std::function<bool()> &look) {
    void *unrelated = device_alloc(SMALL);
    delay<<<1, 1>>>(LATE);
    CHECK_DRIVER(cuMemcpy(to, from, SMALL));
    CHECK(cudaFree(unrelated));
    return ok_if(look(), "the host came before the work was done");
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

// ---------------------------------------------------------------- one stream is all there is, until another comes [75]

Verdict stream_with_the_handle_of_another() {
    int wrong = 0;
    for (int round = 0; round < 6; round++) {
        cudaStream_t old = new_stream();
        uint32_t *first = device_alloc(BYTES);
        fill<<<8, 256, 0, old>>>(first, WORDS, A, LATE);
        CHECK(cudaFree(first));
        CHECK(cudaStreamDestroy(old));
        uint32_t *second = device_alloc(BYTES);
        cudaStream_t next = new_stream();
        for (int i = 0; i < 16 && next != old; i++) next = new_stream();
        fill<<<8, 256, 0, next>>>(second, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(second, BYTES, B);
        CHECK(cudaFree(second));
    }
    return ok_if(wrong == 0, "the old kernel wrote into the new block");
}
Verdict several_streams_then_one() {
    cudaStream_t a = new_stream(), b = new_stream();
    int wrong = 0;
    for (int round = 0; round < 6; round++) {
        uint32_t *on_a = device_alloc(SMALL), *on_b = device_alloc(SMALL);
        fill<<<1, 1, 0, b>>>(on_b, 1, A, 0);
        fill<<<1, 1, 0, a>>>(on_a, 1, A, 0);
        CHECK(cudaFree(on_a));
        CHECK(cudaFree(on_b));
        uint32_t *first = device_alloc(BYTES);
        fill<<<8, 256, 0, a>>>(first, WORDS, A, LATE);
        CHECK(cudaFree(first));
        uint32_t *second = device_alloc(BYTES);
        fill<<<8, 256, 0, b>>>(second, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(second, BYTES, B);
        CHECK(cudaFree(second));
    }
    return ok_if(wrong == 0, "the old kernel wrote into the new block");
}
// The free is all the order there is between a kernel and a copy of what it writes.
Verdict free_orders_a_copy_behind_one_stream() {
    cudaStream_t a = new_stream(), b = new_stream();
    uint32_t *data = device_alloc(BYTES), *result = device_alloc(BYTES);
    int wrong = 0;
    for (int round = 0; round < 6; round++) {
        void *temporary = device_alloc(SMALL);
        fill<<<8, 256, 0, a>>>(data, WORDS, round & 1 ? A : B, LATE);
        CHECK(cudaFree(temporary));
        temporary = device_alloc(SMALL);
        CHECK(cudaFree(temporary));  // nothing new: no barrier of its own
        CHECK(cudaMemcpyAsync(result, data, BYTES, cudaMemcpyDeviceToDevice, b));
        CHECK(cudaDeviceSynchronize());
        wrong += !holds(result, BYTES, round & 1 ? A : B);
    }
    return ok_if(wrong == 0, "the copy came first");
}

// ---------------------------------------------------------------- the list

const Case HAZARDS[] = {
#define H(group, function, ...) {group, #function, function, ##__VA_ARGS__}
    H("visible", pinned_write), H("visible", pinned_interior_write), H("visible", registered_write), H("visible", mapped_write),
    H("visible", managed_write), H("visible", managed_variable), H("visible", pinned_in_struct), H("visible", pinned_in_graph),
    H("visible", copy_to_pinned), H("visible", copy_2d_to_pinned), H("visible", memset_of_pinned), H("visible", value_to_pinned),
    H("visible", launched_host_function), H("visible", stream_callback), H("visible", graph_host_node), H("visible", refill_pinned),
    H("visible", elapsed_time), H("visible", event_query), H("visible", stream_query),
    H("visible", destroy_texture), H("visible", unmap), H("visible", unregister), H("visible", unload_module),
    H("reach", pinned_by_its_end), H("reach", registered_by_its_end), H("reach", pinned_by_a_base_before_it), H("reach", pinned_in_a_packed_struct),
    H("reach", pinned_behind_a_texture), H("reach", copy_2d_to_pinned_at_an_offset), H("reach", access_taken_away), H("reach", access_cut_to_reading),
#if CUDA_VERSION >= 12080
    H("reach", batch_to_pageable), H("reach", batch_from_pageable),
#endif
    H("reach", write_by_another_address), H("reach", copy_to_managed), H("reach", copy_from_managed),
    H("one_stream", stream_with_the_handle_of_another), H("one_stream", several_streams_then_one), H("one_stream", free_orders_a_copy_behind_one_stream),
    H("teardown", reset_device), H("teardown", destroy_context),
    H("deadlock", spin_behind_free), H("deadlock", spin_and_free_async_pointer), H("deadlock", spin_and_malloc_behind_async_free),
    H("deadlock", spin_and_destroy_texture), H("deadlock", query_while_a_free_waits), H("deadlock", two_contexts),
    H("memory", persistent_kernel_and_malloc),
    H("capture", free_during_thread_local_capture), H("capture", free_during_relaxed_capture), H("capture", free_during_global_capture), H("capture", free_during_per_thread_capture),
    H("capture", abandoned_capture), H("capture", query_legacy_during_capture), H("capture", malloc_in_relaxed_capture),
    H("capture", free_async_of_outside_memory_in_capture),
    H("async", programmatic_launch_after_async_reuse), H("async", merged_neighbours), H("async", crossed_frees),
    H("pool", pool_sized_by_malloc_and_free), H("pool", pool_used_and_trim), H("pool", pool_of_its_own), H("pool", pool_numbers), H("pool", pool_numbers_with_a_threshold), H("pool", pool_used_by_threads), H("pool", trim_behind_a_free),
    H("frees", double_free), H("frees", interior_free), H("frees", wild_free), H("frees", async_double_free), H("frees", crossed_double_free), H("frees", odd_sizes),
    H("frees", address_range), H("frees", free_in_callback),
    H("fault", free_after_known_fault), H("process", fork_before_init, true), H("process", fork_after_init, true),
    H("strict", fault_then_free), H("strict", pinned_in_copied_data),
#undef H
};

int main(int argc, char **argv) { return run_cases(HAZARDS, "hazards", argc, argv); }
