// Memory of each kind, so that a breakdown has a row for it. `account all` holds it until its input
// ends, `account captures` during a capture, and `account file` until it has a snapshot. `account
// ends` ends a context and a pool while they are queried. `account late` maps physical memory
// before it records and, at a lower address, afterwards. `account host` has a pool in host memory.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <signal.h>

#define MIB (1ul << 20)

// As in cuda.h: a location is a kind and a number; kind 1 is a device.
typedef struct {
    int kind, handles, location, device;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} PoolProperties;

typedef struct {
    PoolProperties pool;
    const void *access;
    size_t accesses, bytes;
    Pointer address;
} GraphMemory;

typedef struct {
    int kind, handles, location, device;
    void *security;
    unsigned char flags[16];
} Physical;

static void *find(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found);
    return found;
}

#define CALL(name, types, arguments) OK(((int(*) types)find(name))arguments)

// The program holds 12 MiB of the cache, and 24 MiB are free in it.
static void cached(void) {
    Pointer held, freed;
    OK(cuMemAlloc(&held, 12 * MIB));
    OK(cuMemAlloc(&freed, 24 * MIB));
    OK(cuMemFree(freed));
}

// A pool of the program reserves 32 MiB, of which the program holds 8.
static void *pooled(void) {
    PoolProperties properties = {.kind = 1, .location = 1};
    uint64_t keep = UINT64_MAX;
    void *pool;
    Pointer held, freed;
    CALL("cuMemPoolCreate", (void **, PoolProperties *), (&pool, &properties));
    CALL("cuMemPoolSetAttribute", (void *, int, void *), (pool, 4, &keep));
    CALL("cuMemAllocFromPoolAsync", (Pointer *, size_t, void *, void *), (&held, 8 * MIB, pool, 0));
    CALL("cuMemAllocFromPoolAsync", (Pointer *, size_t, void *, void *), (&freed, 24 * MIB, pool, 0));
    CALL("cuMemFreeAsync", (Pointer, void *), (freed, 0));
    return pool;
}

// 2 MiB of host memory, from a pool of the program.
static void pooled_on_host(void) {
    PoolProperties properties = {.kind = 1, .location = 2};
    void *pool;
    Pointer held;
    CALL("cuMemPoolCreate", (void **, PoolProperties *), (&pool, &properties));
    CALL("cuMemAllocFromPoolAsync", (Pointer *, size_t, void *, void *), (&held, 2 * MIB, pool, 0));
}

// A graph with a memory node of 16 MiB.
static void of_graph(void) {
    GraphMemory memory = {.pool = {.kind = 1, .location = 1}, .bytes = 16 * MIB};
    void *graph, *node;
    CALL("cuGraphCreate", (void **, unsigned), (&graph, 0));
    CALL("cuGraphAddMemAllocNode", (void **, void *, void *, size_t, GraphMemory *), (&node, graph, 0, 0, &memory));
}

// 3 MiB of pinned host memory, freed into the cache.
static void pinned_and_freed(void) {
    void *pinned;
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 3 * MIB, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
}

// 10 MiB of physical memory, mapped at two addresses.
static uint64_t physical(Pointer *twice) {
    Physical properties = {.kind = 1, .location = 1};
    uint64_t made;
    CALL("cuMemCreate", (uint64_t *, size_t, Physical *, unsigned long long), (&made, 10 * MIB, &properties, 0));
    CALL("cuMemAddressReserve", (Pointer *, size_t, size_t, Pointer, long), (twice, 20 * MIB, 0, 0, 0));
    return made;
}

static void map(Pointer at, uint64_t physical) {
    CALL("cuMemMap", (Pointer, size_t, size_t, uint64_t, long), (at, 10 * MIB, 0, physical, 0));
}

static void mapped_before_and_while_recorded(void) {
    Pointer twice;
    uint64_t made = physical(&twice);
    map(twice + 10 * MIB, made);
    CHECK(cachealloc_record && !cachealloc_record("state"));
    map(twice, made);
}

static void by_driver(void) {
    struct {
        size_t width, height;
        int format;
        unsigned channels;
    } flat = {1024, 1024, 0x20, 4};
    void *pinned, *array, *module;
    Pointer managed, pitched;
    Pointer twice;
    size_t pitch;
    unsigned image = 0x464c457f;
    CALL("cuMemAllocManaged", (Pointer *, size_t, unsigned), (&managed, 6 * MIB, 1));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 5 * MIB, 0));
    CALL("cuMemAllocPitch_v2", (Pointer *, size_t *, size_t, size_t, unsigned), (&pitched, &pitch, 1024, 4096, 4));
    CALL("cuArrayCreate_v2", (void **, void *), (&array, &flat));
    uint64_t made = physical(&twice);
    map(twice, made);
    map(twice + 10 * MIB, made);
    CALL("cuModuleLoadData", (void **, const void *), (&module, &image));
}

static void wait_for_end(void) {
    char byte;
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
}

// A snapshot is requested; a moment later the context and the pool end.
static void end_while_asked(void) {
    void *context, *pool = pooled();
    CALL("cuCtxCreate_v2", (void **, unsigned, int), (&context, 0, 0));
    cached();
    raise(SIGUSR1);
    usleep(20000);
    CALL("cuMemPoolDestroy", (void *), (pool));
    CALL("cuCtxDestroy_v2", (void *), (context));
    usleep(300000);
}

int main(int count, char **words) {
    CHECK(count == 2);
    start_cuda();
    if (!strcmp(words[1], "ends")) {
        end_while_asked();
        return 0;
    }
    int is_late = !strcmp(words[1], "late");
    if (is_late || !strcmp(words[1], "host")) {
        is_late ? mapped_before_and_while_recorded() : pooled_on_host();
        wait_for_end();
        return 0;
    }
    pinned_and_freed();
    cached();
    pooled();
    of_graph();
    by_driver();
    if (!strcmp(words[1], "captures")) {
        void *stream;
        CALL("cuStreamCreate", (void **, unsigned), (&stream, 1));
        CALL("cuStreamBeginCapture_v2", (void *, int), (stream, 0));
        wait_for_end();
    } else if (!strcmp(words[1], "all")) {
        wait_for_end();
    } else {
        raise(SIGUSR1);
        usleep(500000);
    }
    return 0;
}
