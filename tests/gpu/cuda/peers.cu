// nvcc: -lcuda
// Two devices in one process and in two: peer access, peer copies and kernels, with frees and new
// allocations in between. The host or an event orders every access to memory. The number in
// brackets refers to the list of hazards in docs/ordering.md.
//
//   peers                 all of them; with one device only prints that
//   peers NAME|GROUP...   only these
//   peers --list
//   peers ring            two processes, each with a device (or both with one) and the other's memory by legacy IPC
#include <random>

#include "cases.h"

constexpr unsigned long long LATE = 15000000;  // ns
constexpr size_t SMALL = 64 << 10, BYTES = 4 << 20, WORDS = BYTES / 4;

void on(int device) { CHECK(cudaSetDevice(device)); }
uint32_t *alloc_on(int device, size_t bytes) {
    on(device);
    return device_alloc(bytes);
}
cudaStream_t stream_on(int device) {
    on(device);
    return new_stream();
}
void finish_both() {
    for (int device : {0, 1}) {
        on(device);
        CHECK(cudaDeviceSynchronize());
    }
}
// Lets kernels of `device` access the other device's memory.
void open_access(int device) {
    on(device);
    cudaError_t error = cudaDeviceEnablePeerAccess(1 - device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    else CHECK(error);
}
bool peers() {
    int from = 0, to = 0;
    CHECK(cudaDeviceCanAccessPeer(&from, 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&to, 1, 0));
    return from && to;
}
#define NEED_PEERS \
    if (!peers()) return "no peer access on this machine"

// Loads the kernels of check.h on the second device, too, before any delay matters.
void load_on_both() {
    on(1);
    load_kernels();
    on(0);
    load_kernels();
}
uint32_t *filled_on(int device, uint32_t value) {
    uint32_t *words = alloc_on(device, BYTES);
    CHECK(cudaMemset(words, value & 0xff, BYTES));
    CHECK(cudaDeviceSynchronize());
    return words;
}
bool holds_on(int device, const uint32_t *words, uint32_t value) {
    on(device);
    return holds(words, BYTES, value);
}

// ---------------------------------------------------------------- copies, without access

// [27] A block is freed after a late kernel, allocated again, and written by a copy from the other
// device.
Verdict copy_into_recycled() {
    load_on_both();
    uint32_t *source = filled_on(1, B);
    cudaStream_t here = stream_on(0), there = stream_on(1);
    for (int round = 0; round < 5; round++) {
        uint32_t *block = alloc_on(0, BYTES);
        fill<<<32, 256, 0, here>>>(block, WORDS, A, LATE);
        CHECK(cudaFree(block));
        uint32_t *next = alloc_on(0, BYTES);
        on(1);
        CHECK(cudaMemcpyPeerAsync(next, 0, source, 1, BYTES, there));
        finish_both();
        if (!holds_on(0, next, B)) return "FAIL the freed block's kernel wrote into the next block";
        CHECK(cudaFree(next));
    }
    return "ok";
}
// [5] A copy of the other device reads after a free what a kernel wrote before it.
Verdict copy_out_behind_a_free() {
    load_on_both();
    uint32_t *target = filled_on(1, B);
    cudaStream_t here = stream_on(0), there = stream_on(1);
    on(0);
    uint32_t *shared = device_alloc(BYTES);
    for (int round = 0; round < 5; round++) {
        on(0);
        void *unrelated = device_alloc(SMALL);
        fill<<<32, 256, 0, here>>>(shared, WORDS, 100 + round, LATE);
        CHECK(cudaFree(unrelated));
        on(1);
        CHECK(cudaMemcpyPeerAsync(target, 1, shared, 0, BYTES, there));
        CHECK(cudaStreamSynchronize(there));
        if (!holds_on(1, target, 100 + round)) return "FAIL the copy read before the kernel had written";
    }
    return "ok";
}
// The same with plain copies, which determine the devices from the addresses.
Verdict unified_copies() {
    load_on_both();
    cudaStream_t here = stream_on(0);
    for (int round = 0; round < 10; round++) {
        uint32_t *block = alloc_on(0, BYTES), *target = alloc_on(1, BYTES);
        on(0);
        fill<<<32, 256, 0, here>>>(block, WORDS, round, LATE / 4);
        CHECK(cudaFree(alloc_on(0, SMALL)));
        CHECK(cudaMemcpy(target, block, BYTES, cudaMemcpyDefault));
        CHECK(cudaFree(block));
        if (!holds_on(1, target, round)) return "FAIL contents are wrong";
        on(0);
        CHECK(cudaFree(target));  // the device need not be current
    }
    return "ok";
}
// [30] The second device is used for the first time after a free.
Verdict first_use_of_the_second_device() {
    on(0);
    load_kernels();
    cudaStream_t here = new_stream();
    uint32_t *block = device_alloc(BYTES);
    fill<<<32, 256, 0, here>>>(block, WORDS, A, 100 * LATE);  // longer than it takes to make a context
    CHECK(cudaFree(block));
    uint32_t *next = device_alloc(BYTES), *source = alloc_on(1, BYTES);
    CHECK(cudaMemset(source, B & 0xff, BYTES));
    CHECK(cudaMemcpyPeer(next, 0, source, 1, BYTES));
    finish_both();
    return ok_if(holds_on(0, next, B), "the freed block's kernel wrote into the next block");
}

// ---------------------------------------------------------------- kernels, with access

// [8] The other device's kernel writes a block, and an event orders this device's stream after it.
// Without the library a free does not wait for a stream that only waits for another device (seen on
// two H200s: the kernel met an illegal address).
Verdict peer_kernel_before_a_free() {
    NEED_PEERS;
    load_on_both();
    open_access(1);
    cudaStream_t here = stream_on(0), there = stream_on(1), beside = stream_on(1);
    cudaEvent_t written;
    on(1);
    CHECK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    for (int round = 0; round < 5; round++) {
        uint32_t *block = alloc_on(0, BYTES);
        on(1);
        fill<<<32, 256, 0, there>>>(block, WORDS, A, LATE);
        CHECK(cudaEventRecord(written, there));
        on(0);
        CHECK(cudaStreamWaitEvent(here, written, 0));
        CHECK(cudaStreamSynchronize(here));
        CHECK(cudaFree(block));
        uint32_t *next = device_alloc(BYTES);
        on(1);
        fill<<<32, 256, 0, beside>>>(next, WORDS, B, 0);
        finish_both();
        if (!holds_on(0, next, B)) return "FAIL the freed block's kernel wrote into the next block";
        on(0);
        CHECK(cudaFree(next));
    }
    return "ok";
}
// [8, 27] A kernel of this device writes late. After the free, a kernel of the other device writes
// the next block at the same address.
Verdict peer_kernel_after_a_free() {
    NEED_PEERS;
    load_on_both();
    open_access(1);
    cudaStream_t here = stream_on(0), there = stream_on(1);
    for (int round = 0; round < 5; round++) {
        uint32_t *block = alloc_on(0, BYTES);
        fill<<<32, 256, 0, here>>>(block, WORDS, A, LATE);
        CHECK(cudaFree(block));
        uint32_t *next = device_alloc(BYTES);
        on(1);
        fill<<<32, 256, 0, there>>>(next, WORDS, B, 0);
        finish_both();
        if (!holds_on(0, next, B)) return "FAIL the freed block's kernel wrote into the next block";
        on(0);
        CHECK(cudaFree(next));
    }
    return "ok";
}
// [5] After a free of an unrelated block, the other device's kernel reads what this device's kernel
// wrote.
Verdict peer_kernel_reads_behind_a_free() {
    NEED_PEERS;
    load_on_both();
    open_access(1);
    cudaStream_t here = stream_on(0), there = stream_on(1);
    uint32_t *shared = alloc_on(0, BYTES);
    on(1);
    unsigned long long *wrong = device_alloc<unsigned long long>(256), errors;
    CHECK(cudaMemset(wrong, 0, 256));
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < 5; round++) {
        on(0);
        void *unrelated = device_alloc(SMALL);
        fill<<<32, 256, 0, here>>>(shared, WORDS, round, LATE);
        CHECK(cudaFree(unrelated));
        on(1);
        count_wrong<<<32, 256, 0, there>>>(shared, WORDS, round, wrong);
        CHECK(cudaStreamSynchronize(there));
    }
    CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
    return ok_if(!errors, "the other device read before the kernel had written");
}
// [30] Access is enabled after a free, and the other device's kernel writes the block that was
// allocated again.
Verdict access_opened_behind_a_free() {
    NEED_PEERS;
    load_on_both();
    cudaStream_t here = stream_on(0), there = stream_on(1);
    uint32_t *block = alloc_on(0, BYTES);
    fill<<<32, 256, 0, here>>>(block, WORDS, A, 20 * LATE);
    CHECK(cudaFree(block));
    uint32_t *next = device_alloc(BYTES);
    open_access(1);
    fill<<<32, 256, 0, there>>>(next, WORDS, B, 0);
    finish_both();
    return ok_if(holds_on(0, next, B), "the freed block's kernel wrote into the next block");
}
// Enables and disables access repeatedly, with memory from before and after; prints the codes of
// calls without effect.
Verdict access_on_and_off() {
    NEED_PEERS;
    load_on_both();
    Verdict codes;
    on(1);
    codes += "off while off " + failing(cudaDeviceDisablePeerAccess(0));
    uint32_t *early = alloc_on(0, BYTES);
    for (int round = 0; round < 3; round++) {
        on(1);
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
        if (round == 0) codes += ", on while on " + failing(cudaDeviceEnablePeerAccess(0, 0));
        uint32_t *late = alloc_on(0, BYTES), *gone = alloc_on(0, BYTES);
        on(1);
        cudaStream_t there = new_stream();
        fill<<<8, 256, 0, there>>>(early, WORDS, round, 0);
        fill<<<8, 256, 0, there>>>(late, WORDS, round + 50, 0);
        fill<<<8, 256, 0, there>>>(gone, WORDS, A, LATE / 4);
        CHECK(cudaStreamSynchronize(there));
        CHECK(cudaFree(gone));
        CHECK(cudaDeviceDisablePeerAccess(0));
        if (!holds_on(0, early, round) || !holds_on(0, late, round + 50)) return "FAIL contents are wrong";
        CHECK(cudaFree(late));
        CHECK(cudaStreamDestroy(there));
    }
    CHECK(cudaFree(early));
    return codes;
}
// Many blocks on both devices, written and checked by kernels of the other device, freed from
// either, with events in between.
Verdict crossed_traffic() {
    NEED_PEERS;
    load_on_both();
    open_access(0);
    open_access(1);
    cudaStream_t streams[2] = {stream_on(0), stream_on(1)};
    cudaEvent_t done[2];
    unsigned long long *wrong[2];
    for (int device : {0, 1}) {
        on(device);
        CHECK(cudaEventCreateWithFlags(&done[device], cudaEventDisableTiming));
        wrong[device] = device_alloc<unsigned long long>(256);
        CHECK(cudaMemset(wrong[device], 0, 256));
        CHECK(cudaDeviceSynchronize());
    }
    auto hand_over = [&](int from, int to) {
        on(from);
        CHECK(cudaEventRecord(done[from], streams[from]));
        on(to);
        CHECK(cudaStreamWaitEvent(streams[to], done[from], 0));
    };
    std::mt19937 random(7);
    for (int round = 0; round < 300; round++) {
        int owner = random() % 2, other = 1 - owner;
        size_t words = 256 << random() % 13;
        uint32_t value = round << 8 | 0x31, *block = alloc_on(owner, words * 4);
        fill<<<8, 256, 0, streams[owner]>>>(block, words, value, random() % 50000);
        hand_over(owner, other);
        count_wrong<<<8, 256, 0, streams[other]>>>(block, words, value, wrong[other]);
        fill<<<8, 256, 0, streams[other]>>>(block, words, value + 1, 0);
        hand_over(other, owner);
        count_wrong<<<8, 256, 0, streams[owner]>>>(block, words, value + 1, wrong[owner]);
        fill<<<8, 256, 0, streams[owner]>>>(block, words, ~value, 0);
        CHECK(cudaStreamSynchronize(streams[owner]));
        if (random() % 2) on(other);
        CHECK(cudaFree(block));
    }
    unsigned long long errors = 0, all = 0;
    finish_both();
    for (int device : {0, 1}) {
        on(device);
        CHECK(cudaMemcpy(&errors, wrong[device], sizeof errors, cudaMemcpyDeviceToHost));
        all += errors;
    }
    return ok_if(!all, "contents are wrong");
}
// [19] Stream-ordered memory that the other device can access.
Verdict pool_opened_to_the_peer() {
    NEED_PEERS;
    load_on_both();
    on(0);
    cudaMemPool_t pool;
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 1;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaStream_t here = stream_on(0), there = stream_on(1);
    for (int round = 0; round < 10; round++) {
        on(0);
        uint32_t *block, *next;
        CHECK(cudaMallocAsync((void **)&block, BYTES, here));
        CHECK(cudaStreamSynchronize(here));
        on(1);
        fill<<<8, 256, 0, there>>>(block, WORDS, round, 0);
        CHECK(cudaStreamSynchronize(there));
        if (!holds_on(0, block, round)) return "FAIL contents are wrong";
        CHECK(cudaFreeAsync(block, here));
        CHECK(cudaMallocAsync((void **)&next, BYTES, here));
        fill<<<8, 256, 0, here>>>(next, WORDS, B, 0);
        CHECK(cudaFreeAsync(next, here));
    }
    CHECK(cudaStreamSynchronize(here));
    return "ok";
}

// ---------------------------------------------------------------- no device waits for the other

// [27] Each device runs one half of a collective that only both together can finish; a free on one
// device must not wait for the other.
Verdict halves_of_a_collective() {
    load_on_both();
    volatile uint32_t *flags;
    CHECK(cudaHostAlloc((void **)&flags, 4096, cudaHostAllocPortable));
    cudaStream_t streams[2] = {stream_on(0), stream_on(1)};
    for (int round = 0; round < 6; round++) {
        int first = round % 2, second = 1 - first;
        flags[0] = 0;
        uint32_t *theirs = alloc_on(second, BYTES);
        on(second);
        fill<<<8, 256, 0, streams[second]>>>(theirs, WORDS, A, 0);
        on(first);
        spin_until<<<1, 1, 0, streams[first]>>>(flags);
        on(second);
        CHECK(cudaFree(theirs));  // after this device's work, not after the other's
        uint32_t *next = device_alloc(BYTES);
        fill<<<8, 256, 0, streams[second]>>>(next, WORDS, B, 0);
        set_word<<<1, 1, 0, streams[second]>>>(flags, 1);
        finish_both();
        if (!holds_on(second, next, B)) return "FAIL contents are wrong";
        on(second);
        CHECK(cudaFree(next));
    }
    return "ok";
}
// One thread per device; both allocate and free, and exchange data by peer copies.
Verdict a_thread_each() {
    load_on_both();
    uint32_t *boxes[2] = {filled_on(0, A), filled_on(1, B)};
    bool good[2] = {true, true};
    std::vector<std::thread> threads;
    for (int device : {0, 1})
        threads.emplace_back([&, device] {
            cudaStream_t stream = stream_on(device);
            std::mt19937 random(device);
            for (int round = 0; round < 60; round++) {
                size_t bytes = BYTES >> random() % 8;
                uint32_t *block = device_alloc(bytes), *copy = alloc_on(1 - device, bytes);
                on(device);
                fill<<<8, 256, 0, stream>>>(block, bytes / 4, round, random() % 100000);
                CHECK(cudaMemcpyPeerAsync(copy, 1 - device, block, device, bytes, stream));
                CHECK(cudaFree(block));
                CHECK(cudaStreamSynchronize(stream));
                on(1 - device);
                good[device] &= holds(copy, bytes, round);
                CHECK(cudaFree(copy));
                on(device);
            }
        });
    for (auto &thread : threads) thread.join();
    return ok_if(good[0] && good[1] && holds_on(0, boxes[0], A) && holds_on(1, boxes[1], B), "contents are wrong");
}
// One device is reset while the other continues.
Verdict reset_of_one_device() {
    load_on_both();
    uint32_t *kept = filled_on(0, A), *block = alloc_on(1, BYTES);
    fill<<<8, 256, 0, new_stream()>>>(block, WORDS, B, LATE);
    on(1);
    CHECK(cudaDeviceReset());
    bool good = holds_on(0, kept, A);
    uint32_t *next = alloc_on(1, BYTES);
    CHECK(cudaMemset(next, A & 0xff, BYTES));
    good &= holds_on(1, next, A);
    on(0);
    CHECK(cudaMemcpyPeer(kept, 0, next, 1, BYTES));
    return ok_if(good && holds_on(0, kept, A), "contents are wrong");
}

// ---------------------------------------------------------------- the ring

constexpr int ROUNDS = 20;
struct Link {
    int in, out;
    void send(const void *data, size_t bytes) const {
        if (write(out, data, bytes) != (ssize_t)bytes) _exit(5);
    }
    void receive(void *data, size_t bytes) const {
        if (read(in, data, bytes) != (ssize_t)bytes) _exit(6);
    }
    // Waits until both ranks are here. Each has synchronized its earlier work, or ordered it by a
    // free.
    void meet() const {
        char byte = 0;
        send(&byte, 1);
        receive(&byte, 1);
    }
};
// Each rank writes into the other's memory with kernels, and allocates and frees temporaries while
// they run.
int ring_rank(int rank, const Link &link) {
    watchdog("ring", 60);
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    on(rank % devices);
    load_kernels();
    cudaStream_t stream = new_stream();
    // A pair, so that one block lies after another in a segment; the other rank sees the second
    // one.
    uint32_t *before = device_alloc(BYTES), *mine = device_alloc(BYTES), *theirs;
    fill<<<8, 256, 0, stream>>>(before, WORDS, A, 0);
    cudaIpcMemHandle_t handle, other;
    CHECK(cudaIpcGetMemHandle(&handle, mine));
    link.send(&handle, sizeof handle);
    link.receive(&other, sizeof other);
    CHECK(cudaIpcOpenMemHandle((void **)&theirs, other, cudaIpcMemLazyEnablePeerAccess));
    bool good = true;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t value = round << 4 | rank, *temporary = device_alloc(SMALL << round % 8);
        fill<<<8, 256, 0, stream>>>(temporary, 64, value, 0);
        fill<<<32, 256, 0, stream>>>(theirs, WORDS, value, LATE / 3);
        CHECK(cudaFree(temporary));  // [5] the only wait: natively the kernel has written when it returns
        link.meet();
        good &= holds(mine, BYTES, round << 4 | (1 - rank));
        uint32_t *next = device_alloc(BYTES);  // must be no process's exported memory
        fill<<<32, 256, 0, stream>>>(next, WORDS, ~0u, 0);
        CHECK(cudaFree(next));
        link.meet();
    }
    good &= holds(before, BYTES, A);
    CHECK(cudaIpcCloseMemHandle(theirs));
    link.meet();
    CHECK(cudaFree(mine));
    CHECK(cudaFree(before));
    printf("rank %d: %s\n", rank, good ? "ok" : "FAIL contents are wrong");
    fflush(stdout);
    return !good;
}
int ring() {
    int forth[2], back[2];
    if (pipe(forth) || pipe(back)) return 4;
    // Forks before this process uses CUDA, so that both ranks are ordinary processes.
    pid_t child = fork();
    close(child ? forth[0] : forth[1]);
    close(child ? back[1] : back[0]);
    int result = child ? ring_rank(0, {back[0], forth[1]}) : 0, status = 0;
    if (!child) {
        fflush(stdout);
        // Its line comes after rank 0's, whichever ends first.
        int output[2] = {dup(1), -1};
        char path[] = "/tmp/ring-XXXXXX", text[400];
        output[1] = mkstemp(path);
        dup2(output[1], 1);
        int mine = ring_rank(1, {forth[0], back[1]});
        fflush(stdout);
        char go;
        if (read(forth[0], &go, 1) == 1) {
            ssize_t length = pread(output[1], text, sizeof text, 0);
            if (length > 0) (void)!write(output[0], text, length);
        }
        unlink(path);
        _exit(mine);
    }
    (void)!write(forth[1], "g", 1);
    waitpid(child, &status, 0);
    printf("ring: %s\n", result || status ? "FAIL" : "ok");
    return result || status;
}

const Case CASES[] = {
#define C(group, function) {group, #function, function, true}
    C("copies", copy_into_recycled), C("copies", copy_out_behind_a_free), C("copies", unified_copies), C("copies", first_use_of_the_second_device),
    C("kernels", peer_kernel_before_a_free), C("kernels", peer_kernel_after_a_free), C("kernels", peer_kernel_reads_behind_a_free),
    C("kernels", access_opened_behind_a_free), C("kernels", access_on_and_off), C("kernels", crossed_traffic), C("kernels", pool_opened_to_the_peer),
    C("order", halves_of_a_collective), C("order", a_thread_each), C("order", reset_of_one_device),
#undef C
};

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "ring")) return ring();
    if (argc != 3 || strcmp(argv[1], "--one")) {
        // Queried in a child, because this process starts others and must stay without CUDA.
        pid_t child = fork();
        if (!child) {
            int devices = 0;
            _exit(cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) < 2) {
            printf("skipped: one device\n");
            return 0;
        }
    }
    return run_cases(CASES, "cases", argc, argv);
}
