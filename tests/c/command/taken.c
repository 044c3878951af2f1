// Calls that make the driver take memory for itself. `taken calls` makes one of each kind; `taken
// objects` creates streams and graphs; `taken questions` asks about kernels, which loads them; `taken
// short` loads a module for which the cache has to make room; `taken threads` loads in several
// threads at once; `taken late` is recorded only afterwards; `taken managed` loads beside managed
// memory, `taken captured` in a capture, and `taken ends` in a context that ends. Each then waits for
// the end of its input.
#include "../check.h"
#include <pthread.h>

#define MIB (1ul << 20)
#define THREADS 4
#define EACH 6

static void *find(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found);
    return found;
}

#define CALL(name, types, arguments) OK(((int(*) types)find(name))arguments)

static void *context;

static void *load(void) {
    unsigned image = 0x464c457f;
    void *module;
    CALL("cuModuleLoadData", (void **, const void *), (&module, &image));
    return module;
}

static void *function_of(void *module, const char *name) {
    void *function;
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&function, module, name));
    return function;
}

static void launch(void *function) {
    uint64_t ns = 1000;
    void *arguments[] = {&ns};
    CALL("cuLaunchKernel",
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         (function, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
}

static void wait_for_end(void) {
    char byte;
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
}

// In between, the cache and a pool take memory.
static void unrelated(void) {
    Pointer held, pooled;
    OK(cuMemAlloc(&held, 30 * MIB));
    CALL("cuMemAllocAsync", (Pointer *, size_t, void *), (&pooled, 4 * MIB, 0));
}

static void all_kinds(void) {
    void *module = load(), *library, *kernel, *other;
    int value;
    unsigned image = 0x464c457f;
    launch(function_of(module, "delay"));
    unrelated();
    launch(function_of(module, "delay"));
    CALL("cuFuncLoad", (void *), (function_of(module, "set")));
    CALL("cuFuncGetAttribute", (int *, int, void *), (&value, 0, function_of(module, "spin")));
    CALL("cuCtxSetLimit", (int, size_t), (2, 8 * MIB));
    CALL("cuLibraryLoadData", (void **, void *, void *, void *, unsigned, void *, void *, unsigned),
         (&library, &image, 0, 0, 0, 0, 0, 0));
    CALL("cuLibraryGetKernel", (void **, void *, const char *), (&kernel, library, "delay"));
    launch(kernel);
    // Memory that is taken and returned, with that of the module's function.
    other = load();
    CALL("cuFuncLoad", (void *), (function_of(other, "delay")));
    CALL("cuModuleUnload", (void *), (other));
    // The driver reuses the handles of the unloaded module.
    CALL("cuFuncLoad", (void *), (function_of(load(), "delay")));
}

// Each question loads the kernel that it is about, once.
static void questions(void) {
    unsigned image = 0x464c457f;
    void *module = load(), *library, *kernel, *pointer;
    int grid, threads;
    size_t bytes;
    unsigned config[14] = {1, 1, 1, 1, 1, 1};
    CALL("cuLibraryLoadData", (void **, void *, void *, void *, unsigned, void *, void *, unsigned),
         (&library, &image, 0, 0, 0, 0, 0, 0));
    CALL("cuLibraryGetKernel", (void **, void *, const char *), (&kernel, library, "delay"));
    for (int at = 0; at < 2; at++) {
        CALL("cuKernelSetCacheConfig", (void *, int, int), (kernel, 0, 0));
        CALL("cuLibraryGetUnifiedFunction", (void **, void *, const char *), (&pointer, library, "spin"));
        CALL("cuOccupancyAvailableDynamicSMemPerBlock", (size_t *, void *, int, int),
             (&bytes, function_of(module, "set"), 2, 128));
        CALL("cuOccupancyMaxActiveClusters", (int *, void *, void *), (&grid, function_of(module, "fill"), config));
        CALL("cuOccupancyMaxPotentialClusterSize", (int *, void *, void *),
             (&grid, function_of(module, "copy"), config));
        CALL("cuOccupancyMaxPotentialBlockSize", (int *, int *, void *, void *, size_t, int),
             (&grid, &threads, function_of(module, "add"), 0, 0, 0));
        CALL("cuOccupancyMaxPotentialBlockSizeWithFlags", (int *, int *, void *, void *, size_t, int, unsigned),
             (&grid, &threads, function_of(module, "check"), 0, 0, 0, 0));
    }
    CHECK(grid > 0 && threads == 1024 && bytes > 1 << 16);
}

// Creates each object twice, and destroys the first of each.
static void objects(void) {
    for (int at = 0; at < 2; at++) {
        void *stream, *graph, *executable;
        CALL("cuStreamCreate", (void **, unsigned), (&stream, 1));
        CALL("cuGraphCreate", (void **, unsigned), (&graph, 0));
        CALL("cuGraphInstantiateWithFlags", (void **, void *, unsigned long long), (&executable, graph, 0));
        CALL("cuGraphLaunch", (void *, void *), (executable, stream));
        CALL("cuGraphLaunch", (void *, void *), (executable, stream));
        if (at == 0) {
            CALL("cuGraphExecDestroy", (void *), (executable));
            CALL("cuStreamDestroy_v2", (void *), (stream));
        }
    }
}

static void *loads(void *unused) {
    OK(cuCtxSetCurrent(context));
    for (int at = 0; at < EACH; at++) CALL("cuFuncLoad", (void *), (function_of(load(), "delay")));
    return unused;
}

int main(int count, char **words) {
    CHECK(count == 2);
    const char *way = words[1];
    find_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    if (!strcmp(way, "calls")) {
        all_kinds();
    } else if (!strcmp(way, "objects")) {
        objects();
    } else if (!strcmp(way, "questions")) {
        questions();
    } else if (!strcmp(way, "short")) {
        Pointer freed;
        OK(cuMemAlloc(&freed, 50 * MIB));
        OK(cuMemFree(freed));
        load();
    } else if (!strcmp(way, "threads")) {
        pthread_t threads[THREADS];
        for (int at = 0; at < THREADS; at++) OK(pthread_create(&threads[at], 0, loads, 0));
        for (int at = 0; at < THREADS; at++) OK(pthread_join(threads[at], 0));
    } else if (!strcmp(way, "late")) {
        int (*record)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "cachealloc_record");
        void *before = load();
        CHECK(record);
        launch(function_of(before, "delay"));
        launch(function_of(before, "delay"));
        OK(record("state"));
        CALL("cuModuleUnload", (void *), (before));
        launch(function_of(load(), "delay"));
    } else if (!strcmp(way, "managed")) {
        Pointer managed;
        CALL("cuMemAllocManaged", (Pointer *, size_t, unsigned), (&managed, 6 * MIB, 1));
        load();
    } else if (!strcmp(way, "captured")) {
        void *stream, *graph, *module = load();
        CALL("cuStreamCreate", (void **, unsigned), (&stream, 1));
        CALL("cuStreamBeginCapture_v2", (void *, int), (stream, 2));
        CALL("cuFuncLoad", (void *), (function_of(module, "delay")));
        CALL("cuStreamEndCapture", (void *, void **), (stream, &graph));
    } else if (!strcmp(way, "ends")) {
        void *second;
        Pointer held;
        CALL("cuCtxCreate_v2", (void **, unsigned, int), (&second, 0, 0));
        OK(cuMemAlloc(&held, 2 * MIB));
        load();
        CALL("cuCtxDestroy_v2", (void *), (second));
        OK(cuCtxSetCurrent(context));
        OK(cuMemAlloc(&held, 2 * MIB));
    }
    wait_for_end();
    return 0;
}
