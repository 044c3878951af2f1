// curve KIND N [FILE]: creates N of something, and then makes a few calls in `counted`, whose
// instruction count should not depend on N, or writes a snapshot. Prints the number of those calls,
// and which driver calls happened meanwhile.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int code = call;                                                                                               \
        if (code) {                                                                                                    \
            fprintf(stderr, "%s: %d\n", #call, code);                                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define MISSES 20

static void *driver;
static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

static int (*alloc)(uint64_t *, uint64_t), (*release)(uint64_t);
static int (*alloc_async)(uint64_t *, uint64_t, void *), (*free_async)(uint64_t, void *);
static int (*stream_create)(void **, unsigned), (*begin_capture)(void *, int), (*end_capture)(void *, void **);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                     void **);
static int (*set_current)(void *), (*snapshot)(const char *);
static void *streams[64], *contexts[MISSES];
static uint64_t taken[MISSES + 64];

static void submit(void *stream) { CHECK(launch(&driver, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)); }

// Allocates this many small blocks, and frees each after a separate launch.
static void freed_in_order(long count, long streams_count) {
    uint64_t *blocks = malloc(count * sizeof *blocks);
    for (long i = 0; i < count; i++)
        CHECK(alloc_async(&blocks[i], 4096, streams[i % streams_count]));
    for (long i = 0; i < count; i++) {
        submit(streams[i % streams_count]);
        CHECK(free_async(blocks[i], streams[i % streams_count]));
    }
    free(blocks);
}

// Every other block of an arena is released.
static void fragmented(long count) {
    int (*trim)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "cachealloc_trim");
    uint64_t *blocks = malloc(count * sizeof *blocks);
    for (long i = 0; i < count; i++)
        CHECK(alloc(&blocks[i], 2 << 20));
    for (long i = 0; i < count; i += 2)
        CHECK(release(blocks[i]));
    trim(0);
    free(blocks);
    // The next miss examines what has changed, up to a bound.
    CHECK(alloc(&taken[0], 2 << 20));
}

// Creates and uses this many contexts, and then uses some of them in turn.
static void used_in_turn(long count) {
    int (*create)(void **, unsigned, int) = find("cuCtxCreate_v2");
    for (long i = 0; i < count; i++) {
        void *context;
        CHECK(create(&context, 0, 0));
        CHECK(alloc(&taken[0], 4096));
        CHECK(release(taken[0]));
        if (i < MISSES)
            contexts[i] = context;
    }
    for (long i = 0; i < MISSES; i++) {
        CHECK(set_current(contexts[i]));
        CHECK(alloc(&taken[i], 4096));
    }
}

// This many live blocks; adjacent ones were not allocated one after the other.
static void live(long count) {
    uint64_t *blocks = malloc(count * sizeof *blocks);
    for (long i = 0; i < count; i++)
        CHECK(alloc(&blocks[i], 512));
    for (long i = 0; i < count; i++) {
        long other = i * 7919 % count;
        CHECK(release(blocks[other]));
        CHECK(alloc(&blocks[other], 512));
    }
    free(blocks);
}

__attribute__((noinline)) static long counted(const char *kind, const char *file) {
    long calls = 0;
    if (file) {
        CHECK(snapshot(file));
        calls++;
    }
    if (!strcmp(kind, "pending") || !strcmp(kind, "streams"))
        for (; calls < MISSES; calls++)
            CHECK(alloc_async(&taken[calls], (12 << 20) + (calls << 21), streams[calls % 64]));
    if (!strcmp(kind, "neighbours"))
        for (; calls < MISSES; calls++)
            CHECK(alloc_async(&taken[calls], (1 << 18) - calls * 512, streams[0]));
    // On a stream other than the one that has freed the blocks.
    if (!strcmp(kind, "order"))
        for (; calls < MISSES; calls++)
            CHECK(alloc_async(&taken[calls], (1 << 18) - calls * 512, streams[1]));
    if (!strcmp(kind, "shared")) {
        for (; calls < 64; calls++)
            CHECK(free_async(taken[calls], streams[0]));
    }
    if (!strcmp(kind, "fragmented"))
        for (; calls < MISSES; calls++)
            CHECK(alloc(&taken[calls], (calls % 2 ? 4 : 2) << 20));
    if (!strcmp(kind, "contexts"))
        for (; calls < MISSES; calls++) {
            CHECK(set_current(contexts[calls]));
            CHECK(alloc(&taken[calls + 1], 4096));
        }
    if (!strcmp(kind, "capture")) {
        void *graph;
        CHECK(begin_capture(streams[0], 2));
        for (; calls < MISSES; calls++) {
            CHECK(alloc(&taken[calls], 4096 << calls % 4));
            CHECK(release(taken[calls]));
        }
        CHECK(end_capture(streams[0], &graph));
    }
    __asm__ volatile("" ::: "memory"); // the call is no jump: the function is left where it returns
    return calls;
}

int main(int argc, char **argv) {
    if (argc < 3 || !(driver = dlopen("libcuda.so.1", RTLD_NOW)))
        return 2;
    const char *kind = argv[1];
    long count = atol(argv[2]);
    void *context;
    CHECK(((int (*)(unsigned))find("cuInit"))(0));
    CHECK(((int (*)(void **, int))find("cuDevicePrimaryCtxRetain"))(&context, 0));
    set_current = find("cuCtxSetCurrent");
    CHECK(set_current(context));
    alloc = find("cuMemAlloc_v2"), release = find("cuMemFree_v2");
    alloc_async = find("cuMemAllocAsync"), free_async = find("cuMemFreeAsync");
    stream_create = find("cuStreamCreate"), launch = find("cuLaunchKernel");
    begin_capture = dlsym(driver, "cuStreamBeginCapture_v2"), end_capture = dlsym(driver, "cuStreamEndCapture");
    for (int i = 0; i < 64; i++)
        CHECK(stream_create(&streams[i], 1));
    // The simulated driver has none of these counters.
    long none = 0, *queries = dlsym(driver, "queries"), *records = dlsym(driver, "records");
    int *pending = dlsym(driver, "pending");
    queries = queries ? queries : &none, records = records ? records : &none;
    if (pending)
        *pending = 1;
    if (!strcmp(kind, "pending") || !strcmp(kind, "neighbours") || !strcmp(kind, "order"))
        freed_in_order(count, 1);
    if (!strcmp(kind, "streams"))
        freed_in_order(count, 64);
    if (!strcmp(kind, "fragmented"))
        fragmented(count);
    if (!strcmp(kind, "contexts"))
        used_in_turn(count);
    if (!strcmp(kind, "capture"))
        for (long i = 0; i < count; i++)
            CHECK(alloc(&taken[0], 512));
    if (!strcmp(kind, "shared")) {
        for (int i = 0; i < 64; i++)
            CHECK(alloc_async(&taken[i], 4096 + i * 512, streams[0]));
        submit(streams[0]);
    }
    if (!strcmp(kind, "entries"))
        for (long i = 0; i < count / 2; i++) {
            CHECK(alloc(&taken[0], 512 + i % 50 * 512));
            CHECK(release(taken[0]));
        }
    if (!strcmp(kind, "live"))
        live(count);
    snapshot = (int (*)(const char *))dlsym(RTLD_DEFAULT, "cachealloc_snapshot");
    long asked = *queries, recorded = *records;
    long calls = counted(kind, argv[3]);
    printf("%ld calls, %ld queries, %ld records\n", calls, *queries - asked, *records - recorded);
    return 0;
}
