// nvcc: -lcuda
// Several contexts on one device, their ends with live memory and pending work, resets, the primary context retained
// and released, green contexts, and contexts made through the driver in a program that uses the runtime.
//
//   contexts                 all of them
//   contexts NAME|GROUP...   only these
//   contexts --list
#include <dlfcn.h>

#include <atomic>
#include <random>

#include "cases.h"

constexpr unsigned long long LATE = 15000000;  // ns
constexpr size_t SMALL = 64 << 10, BYTES = 4 << 20, WORDS = BYTES / 4;

CUdevice device_zero() {
    CUdevice device;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    return device;
}
CUcontext current() {
    CUcontext context;
    CHECK_DRIVER(cuCtxGetCurrent(&context));
    return context;
}
// Makes the new context current, as the driver does.
CUcontext new_context() {
    CUcontext context;
#if CUDA_VERSION >= 13000
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device_zero()));
#else
    CHECK_DRIVER(cuCtxCreate(&context, 0, device_zero()));
#endif
    return context;
}
struct With {  // a context for a block of the program
    explicit With(CUcontext context) { CHECK_DRIVER(cuCtxPushCurrent(context)); }
    ~With() { CHECK_DRIVER(cuCtxPopCurrent(nullptr)); }
};
uint32_t *driver_alloc(size_t bytes) {
    CUdeviceptr address;
    CHECK_DRIVER(cuMemAlloc(&address, bytes));
    return (uint32_t *)address;
}
void driver_free(uint32_t *words) { CHECK_DRIVER(cuMemFree((CUdeviceptr)words)); }
// Reads with the driver alone, for contexts that the runtime does not use.
bool driver_holds(const uint32_t *words, size_t bytes, uint32_t value) {
    std::vector<uint32_t> host(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(host.data(), (CUdeviceptr)words, bytes));
    for (uint32_t word : host)
        if (word != value) return false;
    return true;
}

// ---------------------------------------------------------------- several contexts at once

// A context with a stream, memory that stays, and temporary memory.
struct Place {
    CUcontext context;
    cudaStream_t stream;
    uint32_t *kept, tag;
    unsigned long long *wrong;

    void open(uint32_t number) {
        tag = 0x11110000 + number;
        With here(context);
        stream = new_stream();
        kept = device_alloc(BYTES);
        wrong = device_alloc<unsigned long long>(256);
        CHECK(cudaMemset(wrong, 0, 256));
        CHECK(cudaDeviceSynchronize());
        fill<<<32, 256, 0, stream>>>(kept, WORDS, tag, 0);
    }
    // Allocates, writes late, checks and frees with the work in flight.
    void turn(size_t words, uint32_t value) {
        With here(context);
        uint32_t *block = device_alloc(words * 4);
        fill<<<8, 256, 0, stream>>>(block, words, value, 20000);
        count_wrong<<<8, 256, 0, stream>>>(block, words, value, wrong);
        fill<<<8, 256, 0, stream>>>(block, words, ~value, 0);
        CHECK(cudaFree(block));
    }
    bool good() {
        With here(context);
        unsigned long long errors;
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
        return !errors && holds(kept, BYTES, tag);
    }
};
Verdict interleaved() {
    Place places[4];
    places[0].context = current();
    for (int i = 1; i < 4; i++) places[i].context = new_context();
    CHECK_DRIVER(cuCtxSetCurrent(places[0].context));
    for (int i = 0; i < 4; i++) places[i].open(i);
    std::mt19937 random(1);
    for (int round = 0; round < 200; round++) places[random() % 4].turn(256 << random() % 13, round << 8 | 0x40);
    bool good = true;
    for (Place &place : places) good &= place.good();
    for (int i = 3; i > 0; i--) CHECK_DRIVER(cuCtxDestroy(places[i].context));
    CHECK_DRIVER(cuCtxSetCurrent(places[0].context));
    for (int round = 0; round < 20; round++) places[0].turn(1 << 18, 0x77);
    return ok_if(good && places[0].good(), "contents are wrong");
}
Verdict a_thread_each() {
    CUcontext primary = current();
    std::vector<Place> places(4);
    for (Place &place : places) place.context = new_context();
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    for (size_t i = 0; i < places.size(); i++) places[i].open(i);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < places.size(); i++)
        threads.emplace_back([&places, i] {
            std::mt19937 random(i);
            for (int round = 0; round < 100; round++) places[i].turn(256 << random() % 13, round << 8 | i);
        });
    for (auto &thread : threads) thread.join();
    bool good = true;
    for (Place &place : places) good &= place.good();
    for (Place &place : places) CHECK_DRIVER(cuCtxDestroy(place.context));
    return ok_if(good, "contents are wrong");
}
// A block's context need not be current for its free.
Verdict freed_from_another_context() {
    CUcontext primary = current(), other = new_context();
    uint32_t *theirs = driver_alloc(BYTES), *small = driver_alloc(SMALL);
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *ours = device_alloc(BYTES);
    fill<<<8, 256>>>(ours, WORDS, A, 0);
    CHECK(cudaDeviceSynchronize());
    Verdict verdict = "theirs " + code(cuMemFree((CUdeviceptr)theirs)) + " " + code(cuMemFree((CUdeviceptr)small));
    CHECK_DRIVER(cuCtxSetCurrent(other));
    uint32_t *again = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32((CUdeviceptr)again, B, WORDS));
    bool good = driver_holds(again, BYTES, B);
    verdict += ", ours " + code(cuMemFree((CUdeviceptr)ours));
    verdict += ", again " + code(cuMemFree((CUdeviceptr)ours));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *next = device_alloc(BYTES);
    CHECK(cudaMemset(next, A & 0xff, BYTES));
    good &= holds(next, BYTES, A);
    CHECK_DRIVER(cuCtxDestroy(other));
    return verdict + ", contents " + ok_if(good, "are wrong");
}
Verdict context_of_a_pointer() {
    CUcontext primary = current(), other = new_context(), seen = nullptr;
    uint32_t *theirs = driver_alloc(SMALL);
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *ours = device_alloc(SMALL);
    Verdict verdict;
    CHECK_DRIVER(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)theirs));
    verdict += seen == other ? "theirs" : "FAIL theirs is another's";
    CHECK_DRIVER(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)ours));
    verdict += seen == primary ? ", ours" : ", FAIL ours is another's";
    CHECK_DRIVER(cuCtxDestroy(other));
    verdict += ", after its end " + code(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)theirs));
    return verdict + ", freed " + code(cuMemFree((CUdeviceptr)theirs));
}
// [30] The second context first appears while a kernel of the first one still writes a block that
// was freed and handed out again.
Verdict second_context_behind_a_free() {
    CUcontext primary = current(), other = new_context();
    uint32_t *source = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32((CUdeviceptr)source, B, WORDS));
    CHECK_DRIVER(cuCtxSynchronize());
    CUstream theirs;
    CHECK_DRIVER(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    cudaStream_t stream = new_stream();
    for (int round = 0; round < 5; round++) {
        uint32_t *block = device_alloc(BYTES);
        fill<<<32, 256, 0, stream>>>(block, WORDS, A, LATE);
        CHECK(cudaFree(block));
        uint32_t *next = device_alloc(BYTES);
        {
            With there(other);
            CHECK_DRIVER(cuMemcpyPeerAsync((CUdeviceptr)next, primary, (CUdeviceptr)source, other, BYTES, theirs));
            CHECK_DRIVER(cuStreamSynchronize(theirs));
        }
        CHECK(cudaDeviceSynchronize());
        if (!holds(next, BYTES, B)) return "FAIL the freed block's kernel wrote into the next block";
        CHECK(cudaFree(next));
    }
    CHECK_DRIVER(cuCtxDestroy(other));
    return "ok";
}
// [30] The same with a context that does not exist yet at the time of the free.
Verdict new_context_behind_a_free() {
    CUcontext primary = current();
    cudaStream_t stream = new_stream();
    uint32_t *block = device_alloc(BYTES);
    fill<<<32, 256, 0, stream>>>(block, WORDS, A, 60 * LATE);  // longer than it takes to make a context
    CHECK(cudaFree(block));
    uint32_t *next = device_alloc(BYTES);
    CUcontext other = new_context();
    uint32_t *source = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32((CUdeviceptr)source, B, WORDS));
    CHECK_DRIVER(cuMemcpyPeer((CUdeviceptr)next, primary, (CUdeviceptr)source, other, BYTES));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CHECK(cudaDeviceSynchronize());
    bool good = holds(next, BYTES, B);
    CHECK_DRIVER(cuCtxDestroy(other));
    return ok_if(good, "the freed block's kernel wrote into the next block");
}

// ---------------------------------------------------------------- ends

Verdict destroyed_with_live_blocks() {
    CUcontext primary = current();
    for (int round = 0; round < 4; round++) {
        CUcontext other = new_context();
        cudaStream_t stream = new_stream();
        for (int i = 0; i < 8; i++) {
            uint32_t *block = driver_alloc(SMALL << i);
            fill<<<4, 256, 0, stream>>>(block, (SMALL << i) / 4, A, LATE / 8);
            if (i % 2) driver_free(block);
        }
        CHECK_DRIVER(cuCtxDestroy(other));  // with the work in flight
        CHECK_DRIVER(cuCtxSetCurrent(primary));
        uint32_t *block = device_alloc(BYTES);
        CHECK(cudaMemset(block, B & 0xff, BYTES));
        sleep_ms(20);
        if (!holds(block, BYTES, B)) return "FAIL the dead context wrote into our memory";
        CHECK(cudaFree(block));
    }
    return "ok";
}
Verdict destroyed_behind_a_free() {
    CUcontext primary = current();
    for (int round = 0; round < 4; round++) {
        CUcontext other = new_context();
        cudaStream_t stream = new_stream();
        uint32_t *block = driver_alloc(BYTES);
        fill<<<8, 256, 0, stream>>>(block, WORDS, A, LATE);
        driver_free(block);
        CHECK_DRIVER(cuCtxDestroy(other));
        other = new_context();  // may well lie at the same address
        uint32_t *next = driver_alloc(BYTES);
        CHECK_DRIVER(cuMemsetD32((CUdeviceptr)next, B, WORDS));
        sleep_ms(20);
        bool good = driver_holds(next, BYTES, B);
        CHECK_DRIVER(cuCtxDestroy(other));
        if (!good) return "FAIL the dead context wrote into the next one's memory";
    }
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    return "ok";
}
Verdict destroyed_by_another_thread() {
    CUcontext primary = current(), other = new_context();
    uint32_t *block = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32((CUdeviceptr)block, A, WORDS));
    std::thread([other] { CHECK_DRIVER(cuCtxDestroy(other)); }).join();
    CUdeviceptr next = 0;  // it is still current here
    Verdict verdict = "malloc " + code(cuMemAlloc(&next, SMALL)) + ", free " + code(cuMemFree((CUdeviceptr)block));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *ours = device_alloc(BYTES);
    CHECK(cudaMemset(ours, B & 0xff, BYTES));
    return verdict + ", contents " + ok_if(holds(ours, BYTES, B), "are wrong");
}

// ---------------------------------------------------------------- resets

Verdict reset_in_the_middle() {
    for (int round = 0; round < 4; round++) {
        cudaStream_t stream = new_stream();
        uint32_t *live = device_alloc(BYTES), *freed = device_alloc(BYTES);
        uint32_t *pooled, *pinned = pinned_alloc(SMALL);
        CHECK(cudaMallocAsync((void **)&pooled, BYTES, stream));
        fill<<<8, 256, 0, stream>>>(live, WORDS, A, LATE);
        fill<<<8, 256, 0, stream>>>(freed, WORDS, A, LATE);
        fill<<<8, 256, 0, stream>>>(pooled, WORDS, A, 0);
        CHECK(cudaMemcpyAsync(pinned, live, SMALL, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFree(freed));
        CHECK(cudaFreeAsync(pooled, stream));
        CHECK(cudaDeviceReset());
        uint32_t *block = device_alloc(BYTES);
        cudaStream_t another = new_stream();
        fill<<<8, 256, 0, another>>>(block, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        if (!holds(block, BYTES, B)) return "FAIL contents after a reset";
        CHECK(cudaFree(block));
    }
    return "ok";
}
Verdict reset_beside_a_thread() {
    std::atomic<int> step{0};
    auto until = [&](int value) {
        while (step < value) std::this_thread::yield();
    };
    bool before = false, after = false;
    std::thread beside([&] {
        uint32_t *block = device_alloc(BYTES);
        CHECK(cudaMemset(block, A & 0xff, BYTES));
        before = holds(block, BYTES, A);
        step = 1;
        until(2);
        uint32_t *next = device_alloc(BYTES);
        CHECK(cudaMemset(next, B & 0xff, BYTES));
        after = holds(next, BYTES, B);
        CHECK(cudaFree(next));
    });
    until(1);
    CHECK(cudaDeviceReset());
    step = 2;
    beside.join();
    uint32_t *block = device_alloc(BYTES);
    CHECK(cudaMemset(block, A & 0xff, BYTES));
    return ok_if(before && after && holds(block, BYTES, A), "contents are wrong");
}

// ---------------------------------------------------------------- the primary context, with the driver alone

Verdict primary_retained_and_released() {
    CHECK_DRIVER(cuInit(0));
    CUdevice device = device_zero();
    for (int round = 0; round < 3; round++) {
        CUcontext primary, again;
        CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
        CHECK_DRIVER(cuDevicePrimaryCtxRetain(&again, device));
        if (primary != again) return "FAIL two primary contexts";
        CHECK_DRIVER(cuCtxSetCurrent(primary));
        uint32_t *live = driver_alloc(BYTES), *freed = driver_alloc(BYTES);
        CHECK_DRIVER(cuMemsetD32Async((CUdeviceptr)freed, A, WORDS, nullptr));
        driver_free(freed);
        CHECK_DRIVER(cuMemsetD32((CUdeviceptr)live, B, WORDS));
        CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
        if (!driver_holds(live, BYTES, B)) return "FAIL released too early";
        CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));  // the last one: the context ends
        CUdeviceptr address = 0;
        Verdict dead = code(cuMemAlloc(&address, SMALL));
        if (round == 0) printf("an allocation after the last release: %s\n", dead.c_str());
    }
    return "ok";
}
Verdict primary_reset_by_the_driver() {
    CHECK_DRIVER(cuInit(0));
    CUdevice device = device_zero();
    CUcontext primary;
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *live = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32Async((CUdeviceptr)live, A, WORDS, nullptr));
    CHECK_DRIVER(cuDevicePrimaryCtxReset(device));
    CUdeviceptr address = 0;
    Verdict verdict = "malloc after it " + code(cuMemAlloc(&address, SMALL));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    uint32_t *block = driver_alloc(BYTES);
    CHECK_DRIVER(cuMemsetD32((CUdeviceptr)block, B, WORDS));
    bool good = driver_holds(block, BYTES, B);
    driver_free(block);
    return verdict + ", contents " + ok_if(good, "are wrong");
}
// A library retains and releases the primary context around a runtime program's own use.
Verdict primary_shared_with_the_runtime() {
    CUdevice device = device_zero();
    uint32_t *ours = device_alloc(BYTES);
    CHECK(cudaMemset(ours, A & 0xff, BYTES));
    for (int round = 0; round < 5; round++) {
        CUcontext primary;
        CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
        {
            With there(primary);
            uint32_t *theirs = driver_alloc(BYTES);
            fill<<<8, 256>>>(theirs, WORDS, B, LATE / 10);
            driver_free(theirs);
        }
        CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
        uint32_t *next = device_alloc(BYTES);
        fill<<<8, 256>>>(next, WORDS, A, 0);
        if (!holds(next, BYTES, A)) return "FAIL contents are wrong";
        CHECK(cudaFree(next));
    }
    return ok_if(holds(ours, BYTES, A), "a release ended the program's memory");
}

// ---------------------------------------------------------------- through the driver, in a program that uses the runtime

// Does what a plugin does that finds the driver by itself.
Verdict through_dlsym() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "FAIL no libcuda.so.1";
    auto create = (CUresult(*)(CUcontext *, unsigned, CUdevice))dlsym(library, "cuCtxCreate_v2");
    auto destroy = (CUresult(*)(CUcontext))dlsym(library, "cuCtxDestroy_v2");
    auto allocate = (CUresult(*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
    auto release = (CUresult(*)(CUdeviceptr))dlsym(library, "cuMemFree_v2");
    auto set = (CUresult(*)(CUdeviceptr, unsigned, size_t, CUstream))dlsym(library, "cuMemsetD32Async");
    auto pop = (CUresult(*)(CUcontext *))dlsym(library, "cuCtxPopCurrent_v2");
    if (!create || !destroy || !allocate || !release || !set || !pop) return "FAIL the driver lacks a function";
    cudaStream_t stream = new_stream();
    for (int round = 0; round < 4; round++) {
        uint32_t *ours = device_alloc(BYTES);
        fill<<<8, 256, 0, stream>>>(ours, WORDS, A, LATE / 4);
        CUcontext other;
        CUdeviceptr theirs, next;
        CHECK_DRIVER(create(&other, 0, device_zero()));
        CHECK_DRIVER(allocate(&theirs, BYTES));
        CHECK_DRIVER(set(theirs, B, WORDS, nullptr));
        CHECK_DRIVER(release(theirs));
        CHECK_DRIVER(allocate(&next, BYTES));
        CHECK_DRIVER(set(next, B, WORDS, nullptr));
        bool good = driver_holds((uint32_t *)next, BYTES, B);
        CHECK_DRIVER(pop(nullptr));
        CHECK(cudaFree(ours));
        uint32_t *again = device_alloc(BYTES);
        fill<<<8, 256>>>(again, WORDS, B, 0);
        good &= holds(again, BYTES, B);
        CHECK(cudaFree(again));
        CHECK_DRIVER(destroy(other));
        if (!good) return "FAIL contents are wrong";
    }
    return "ok";
}
// The runtime works in whatever context is current; its memory belongs to that context.
Verdict runtime_in_a_foreign_context() {
    CUcontext primary = current(), other = new_context(), seen = nullptr;
    uint32_t *theirs = device_alloc(BYTES);
    CHECK_DRIVER(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)theirs));
    fill<<<8, 256>>>(theirs, WORDS, A, LATE / 4);
    CHECK(cudaFree(theirs));
    uint32_t *next = device_alloc(BYTES);
    fill<<<8, 256, 0, new_stream()>>>(next, WORDS, B, 0);
    CHECK(cudaDeviceSynchronize());
    bool good = holds(next, BYTES, B);
    CHECK_DRIVER(cuCtxSetCurrent(nullptr));
    uint32_t *ours = device_alloc(SMALL);  // with none current the runtime takes the primary one
    Verdict verdict = std::string("with none current: ") + (current() == primary ? "the primary" : "another") + " context";
    CHECK(cudaFree(ours));
    CHECK_DRIVER(cuCtxDestroy(other));
    return verdict + (seen == other ? "" : ", FAIL not the current context's") + ", contents " + ok_if(good, "are wrong");
}

// ---------------------------------------------------------------- green contexts

#if CUDA_VERSION >= 12040
struct Green {
    CUgreenCtx part[2] = {};
    CUcontext context[2] = {};
    CUstream stream[2] = {};

    // Two halves of the device; "" or why there are none.
    Verdict open() {
        CUdevice device = device_zero();
        CUdevResource all, groups[2], rest;
        unsigned count = 2;
        if (cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM)) return "no resources";
        if (cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 16) || count < 2) return "no split";
        for (int i = 0; i < 2; i++) {
            CUdevResourceDesc description;
            CHECK_DRIVER(cuDevResourceGenerateDesc(&description, &groups[i], 1));
            CHECK_DRIVER(cuGreenCtxCreate(&part[i], description, device, CU_GREEN_CTX_DEFAULT_STREAM));
            CHECK_DRIVER(cuCtxFromGreenCtx(&context[i], part[i]));
            CHECK_DRIVER(cuGreenCtxStreamCreate(&stream[i], part[i], CU_STREAM_NON_BLOCKING, 0));
        }
        return "";
    }
    void close() {
        for (int i = 0; i < 2; i++) {
            {
                With there(context[i]);
                CHECK_DRIVER(cuStreamDestroy(stream[i]));
            }
            CHECK_DRIVER(cuGreenCtxDestroy(part[i]));
        }
    }
};
// One part of the device still writes a block that is freed; the other part uses the memory at
// once.
Verdict green_parts() {
    Green green;
    if (Verdict why = green.open(); !why.empty()) return why;
    CUcontext primary = current();
    for (int round = 0; round < 6; round++) {
        uint32_t *block = device_alloc(BYTES);
        {
            With there(green.context[round % 2]);
            fill<<<8, 256, 0, green.stream[round % 2]>>>(block, WORDS, A, LATE);
        }
        CHECK(cudaFree(block));
        uint32_t *next = device_alloc(BYTES);
        {
            With there(green.context[1 - round % 2]);
            fill<<<8, 256, 0, green.stream[1 - round % 2]>>>(next, WORDS, B, 0);
            CHECK_DRIVER(cuStreamSynchronize(green.stream[1 - round % 2]));
            CHECK_DRIVER(cuStreamSynchronize(green.stream[round % 2]));
        }
        CHECK(cudaDeviceSynchronize());
        if (!holds(next, BYTES, B)) return "FAIL the freed block's kernel wrote into the next block";
        CHECK(cudaFree(next));
    }
    if (current() != primary) return "FAIL another context is current";
    green.close();
    return "ok";
}
// Memory allocated and freed with a green context current.
Verdict green_memory() {
    Green green;
    if (Verdict why = green.open(); !why.empty()) return why;
    bool good = true;
    for (int round = 0; round < 6; round++) {
        uint32_t *block, *next;
        {
            With there(green.context[0]);
            block = driver_alloc(BYTES);
            fill<<<8, 256, 0, green.stream[0]>>>(block, WORDS, A, LATE);
            driver_free(block);
            next = driver_alloc(BYTES);
        }
        With there(green.context[1]);
        fill<<<8, 256, 0, green.stream[1]>>>(next, WORDS, B, 0);
        CHECK_DRIVER(cuStreamSynchronize(green.stream[1]));
        CHECK_DRIVER(cuStreamSynchronize(green.stream[0]));
        good &= driver_holds(next, BYTES, B);
        driver_free(next);
    }
    green.close();
    uint32_t *after = device_alloc(BYTES);  // the primary context lives on
    CHECK(cudaMemset(after, A & 0xff, BYTES));
    good &= holds(after, BYTES, A);
    return ok_if(good, "contents are wrong");
}
// Many frees with kernels in flight on both parts and on the whole device.
Verdict green_and_plain() {
    Green green;
    if (Verdict why = green.open(); !why.empty()) return why;
    cudaStream_t plain = new_stream();
    unsigned long long *wrong = device_alloc<unsigned long long>(256), errors;
    CHECK(cudaMemset(wrong, 0, 256));
    CHECK(cudaDeviceSynchronize());
    std::mt19937 random(3);
    for (int round = 0; round < 120; round++) {
        size_t words = 256 << random() % 12;
        uint32_t value = round << 8 | 0x21, *block = device_alloc(words * 4);
        auto use = [&](cudaStream_t stream) {
            fill<<<4, 256, 0, stream>>>(block, words, value, 30000);
            count_wrong<<<4, 256, 0, stream>>>(block, words, value, wrong);
            fill<<<4, 256, 0, stream>>>(block, words, ~value, 0);
        };
        if (int which = random() % 3; which < 2) {
            With there(green.context[which]);
            use(green.stream[which]);
        } else {
            use(plain);
        }
        CHECK(cudaFree(block));
    }
    for (int which = 0; which < 2; which++) {
        With there(green.context[which]);
        CHECK_DRIVER(cuStreamSynchronize(green.stream[which]));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
    green.close();
    return ok_if(!errors, "contents are wrong");
}
// [44] A wait with a green context current says nothing about work of the primary one, which uses
// memory that was allocated while the green context was current.
Verdict green_synchronised() {
    Green green;
    if (Verdict why = green.open(); !why.empty()) return why;
    cudaStream_t plain = new_stream(), other = new_stream();
    bool good = true;
    for (int round = 0; round < 6; round++) {
        uint32_t *block, *next;
        {
            With there(green.context[round % 2]);
            block = driver_alloc(BYTES);
        }
        fill<<<8, 256, 0, plain>>>(block, WORDS, A, LATE);
        {
            With there(green.context[round % 2]);
            CHECK_DRIVER(cuCtxSynchronize());
            driver_free(block);
            next = driver_alloc(BYTES);
        }
        fill<<<8, 256, 0, other>>>(next, WORDS, B, 0);
        CHECK(cudaDeviceSynchronize());
        good &= holds(next, BYTES, B);
        CHECK(cudaFree(next));
    }
    green.close();
    return ok_if(good, "the freed block's kernel wrote into the next block");
}
// Prints which calls return only after a kernel of the other context has ended.
Verdict green_waits() {
    Green green;
    if (Verdict why = green.open(); !why.empty()) return why;
    cudaStream_t plain = new_stream();
    CUcontext primary = current();
    unsigned long long ids[3] = {};
    CHECK_DRIVER(cuCtxGetId(primary, &ids[0]));
    Verdict verdict;
    for (int i = 0; i < 2; i++) {
        CUresult result = cuCtxGetId(green.context[i], &ids[1 + i]);
        verdict += "id of a green one " + code(result) + (ids[1 + i] == ids[0] ? " as the primary one's, " : " its own, ");
    }
    {
        With there(green.context[0]);
        unsigned long long id = 0;
        CUcontext seen = current();
        CHECK_DRIVER(cuCtxGetId(nullptr, &id));
        verdict += std::string("current id ") + (id == ids[0] ? "primary's" : "own") + ", handle " + (seen == green.context[0] ? "own" : "another");
        CUcontext of = nullptr;
        CUdeviceptr mine = (CUdeviceptr)driver_alloc(SMALL);
        CHECK_DRIVER(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, mine));
        verdict += std::string(", its memory's context ") + (of == primary ? "primary" : of == green.context[0] ? "own" : "another");
        driver_free((uint32_t *)mine);
    }
    auto waits = [&](auto call) {
        auto start = std::chrono::steady_clock::now();
        call();
        double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        CHECK(cudaDeviceSynchronize());
        for (CUstream stream : green.stream) CHECK_DRIVER(cuStreamSynchronize(stream));
        return ms > 20 ? " waits" : " does not wait";
    };
    auto on_primary = [&] { delay<<<1, 1, 0, plain>>>(60000000); };
    auto on_green = [&] {
        With there(green.context[0]);
        delay<<<1, 1, 0, green.stream[0]>>>(60000000);
    };
    auto look = [&](const char *where, auto busy) {
        uint32_t *ours = device_alloc(SMALL), *again = device_alloc(SMALL), *theirs, *also;
        {
            With there(green.context[0]);
            theirs = driver_alloc(SMALL), also = driver_alloc(SMALL);
        }
        auto add = [&](const char *what, auto call) {
            busy();
            verdict += std::string("; work ") + where + ": " + what + waits(call);
        };
        add("free of the primary's", [&] { driver_free(ours); });
        add("free of a green one's under the primary", [&] { driver_free(theirs); });
        add("free of the primary's under a green one", [&] {
            With there(green.context[1]);
            driver_free(again);
        });
        add("free of a green one's under it", [&] {
            With there(green.context[0]);
            driver_free(also);
        });
        add("synchronise the primary", [&] { CHECK_DRIVER(cuCtxSynchronize()); });
        add("synchronise the first green one", [&] {
            With there(green.context[0]);
            CHECK_DRIVER(cuCtxSynchronize());
        });
        add("synchronise the second green one", [&] {
            With there(green.context[1]);
            CHECK_DRIVER(cuCtxSynchronize());
        });
    };
    look("on the primary", on_primary);
    look("on the first green one", on_green);
    green.close();
    return verdict;
}
#endif

const Case CASES[] = {
#define C(group, function, ...) {group, #function, function, ##__VA_ARGS__}
    C("several", interleaved), C("several", a_thread_each), C("several", freed_from_another_context), C("several", context_of_a_pointer),
    C("several", second_context_behind_a_free), C("several", new_context_behind_a_free),
    C("ends", destroyed_with_live_blocks), C("ends", destroyed_behind_a_free), C("ends", destroyed_by_another_thread),
    C("resets", reset_in_the_middle), C("resets", reset_beside_a_thread),
    C("primary", primary_retained_and_released, true), C("primary", primary_reset_by_the_driver, true), C("primary", primary_shared_with_the_runtime),
    C("behind", through_dlsym), C("behind", runtime_in_a_foreign_context),
#if CUDA_VERSION >= 12040
    C("green", green_parts), C("green", green_memory), C("green", green_and_plain), C("green", green_synchronised), C("green-waits", green_waits),
#endif
#undef C
};

int main(int argc, char **argv) { return run_cases(CASES, "cases", argc, argv); }
