// A program that observes itself through CUPTI: callbacks on every call of the runtime and of the
// driver, one of which allocates and frees, and activity records of kernels. The program's calls,
// the kernels that ran, and the nesting depth of driver calls are the same with and without the
// library.
#include <cupti.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "../cuda/check.h"

#define CHECK_CUPTI(call)                                                        \
    do {                                                                         \
        CUptiResult result_ = (call);                                            \
        if (result_ != CUPTI_SUCCESS) {                                          \
            const char *text_ = "?";                                             \
            cuptiGetResultString(result_, &text_);                               \
            printf("skipped: %s: %s\n", #call, text_);                           \
            fflush(stdout);                                                      \
            _exit(0);                                                            \
        }                                                                        \
    } while (0)

std::mutex lock;
std::map<std::string, int> runtime_calls;
std::atomic<int> deepest{0}, launches{0}, inside{0}, kernels{0}, lost{0};
thread_local int depth = 0;
thread_local bool allocating = false;

void CUPTIAPI called(void *, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    auto *call = static_cast<const CUpti_CallbackData *>(data);
    bool enter = call->callbackSite == CUPTI_API_ENTER;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
        depth += enter ? 1 : -1;
        int seen = deepest;
        while (depth > seen && !deepest.compare_exchange_weak(seen, depth)) {
        }
        if (enter && (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz ||
                      id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz))
            launches++;
        return;
    }
    if (allocating) return;
    if (enter) {
        std::lock_guard<std::mutex> guard(lock);
        runtime_calls[call->functionName]++;
        return;
    }
    if (std::string(call->functionName).find("cudaLaunchKernel") == 0 && inside++ % 16 == 0) {
        allocating = true;  // what a tool does that keeps its own buffers
        void *buffer;
        CHECK(cudaMalloc(&buffer, 1 << 16));
        CHECK(cudaFree(buffer));
        allocating = false;
    }
}

void CUPTIAPI want_buffer(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20;
    *buffer = (uint8_t *)aligned_alloc(8, *size);
    *records = 0;
}
void CUPTIAPI full_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    CUpti_Activity *record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) kernels++;
    free(buffer);
}

int main() {
    watchdog("watched", 100);
    CUpti_SubscriberHandle subscriber;
    CHECK_CUPTI(cuptiSubscribe(&subscriber, (CUpti_CallbackFunc)called, nullptr));
    CHECK_CUPTI(cuptiActivityRegisterCallbacks(want_buffer, full_buffer));
    CHECK_CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    load_kernels();
    CHECK_CUPTI(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    CHECK_CUPTI(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    unsigned long long *wrong = device_alloc<unsigned long long>(256), errors;
    CHECK(cudaMemset(wrong, 0, 256));
    CHECK(cudaDeviceSynchronize());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; thread++)
        threads.emplace_back([thread, wrong] {
            cudaStream_t stream = new_stream();
            for (int i = 0; i < 100; i++) {
                size_t words = 256 << i % 12;
                uint32_t value = thread << 16 | i, *block = device_alloc(words * 4);
                fill<<<4, 256, 0, stream>>>(block, words, value, 10000);
                count_wrong<<<4, 256, 0, stream>>>(block, words, value, wrong);
                CHECK(cudaFree(block));
                CHECK(cudaMallocAsync((void **)&block, words * 4, stream));
                fill<<<4, 256, 0, stream>>>(block, words, value, 0);
                CHECK(cudaFreeAsync(block, stream));
            }
            CHECK(cudaStreamSynchronize(stream));
        });
    for (auto &thread : threads) thread.join();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
    CHECK_CUPTI(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    CHECK_CUPTI(cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    CHECK_CUPTI(cuptiActivityFlushAll(1));
    CHECK_CUPTI(cuptiUnsubscribe(subscriber));
    for (auto &call : runtime_calls) printf("%s: %d\n", call.first.c_str(), call.second);
    printf("launches: %d, kernels: %d, depth of the driver's calls: %d, wrong words: %llu\n", launches.load(), kernels.load(), deepest.load(), errors);
    return errors != 0;
}
