// Requests of all kinds that fail for lack of memory.
#include "../check.h"
#include <dlfcn.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)

// Properties of physical memory of device 0 (`CUmemAllocationProp`).
typedef struct { int type, handles, where, device; void *metadata; unsigned char more[8]; } Properties;
typedef struct { size_t width, height; int format; unsigned channels; } Flat;

static void *function(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found);
    return found;
}

// Calls each of these functions, which fails at once.
static int calls(int count, char **names) {
    void (*fail)(const char *) = function("sim_fail");
    for (int i = 0; i < count; i++) {
        char fault[200];
        snprintf(fault, sizeof fault, "%s@*=2", names[i]);
        fail(fault);
        // No argument is read, because the call fails at once.
        int (*call)(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t) =
            function(names[i]);
        printf("%s %d\n", names[i], call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    }
    return 0;
}

static int create(size_t bytes) {
    int (*make)(unsigned long long *, size_t, const Properties *, unsigned long long) = function("cuMemCreate");
    Properties properties = {.type = 1, .where = 1};
    unsigned long long handle;
    return make(&handle, bytes, &properties, 0);
}

static int array(void) {
    int (*make)(void **, const Flat *) = function("cuArrayCreate_v2");
    Flat flat = {16384, 3200, 0x20, 1};
    void *made;
    return make(&made, &flat);
}

static int managed(void) {
    int (*make)(Pointer *, size_t, unsigned) = function("cuMemAllocManaged");
    Pointer pointer;
    return make(&pointer, 200 * MIB, 1);
}

static int pooled(void) {
    int (*make)(Pointer *, size_t, void *) = function("cuMemAllocAsync");
    Pointer pointer;
    return make(&pointer, 200 * MIB, NULL);
}

static int linear(size_t bytes) {
    Pointer pointer;
    return cuMemAlloc(&pointer, bytes);
}

// Fills the device with memory of this kind, for the library's report.
static int kind(const char *name, int most) {
    int code = 0, count = 0;
    while (!code && count < most) {
        count++;
        if (!strcmp(name, "physical"))
            code = create(200 * MIB);
        else if (!strcmp(name, "array"))
            code = array();
        else if (!strcmp(name, "managed"))
            code = managed();
        else if (!strcmp(name, "pooled"))
            code = pooled();
        else
            code = linear(200 * MIB);
    }
    printf("%s: %d at %d\n", name, code, count);
    return 0;
}

// Requests less and less until a request succeeds, and frees that memory; repeats this.
static int probe(int times) {
    for (int i = 0; i < times; i++) {
        Pointer pointer = 0;
        size_t bytes = (size_t)8 << 30;
        while (cuMemAlloc(&pointer, bytes))
            bytes /= 2;
        OK(cuMemFree(pointer));
    }
    return 0;
}

// Calls without a size: one fails, then another succeeds, then the first is repeated.
static int again(void) {
    void (*fail)(const char *) = function("sim_fail");
    int (*load)(void **, const void *) = function("cuModuleLoadData");
    int (*get)(void **, void *, const char *) = function("cuModuleGetFunction");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **) = function("cuLaunchKernel");
    static const char images[2][5] = {"\x7f" "ELF", "\x7f" "ELF"};
    void *modules[2], *kernels[2];
    fail("cuModuleLoadData@*=2");
    printf("module %d", load(&modules[0], images[0]));
    fail(NULL);
    printf(" %d", load(&modules[1], images[1]));
    fprintf(stderr, "the same module\n");
    printf(" %d\n", load(&modules[0], images[0]));
    for (int i = 0; i < 2; i++)
        OK(get(&kernels[i], modules[i], "delay"));
    unsigned long long ns = 1;
    void *arguments[] = {&ns};
    fail("cuLaunchKernel@*=2");
    printf("launch %d", launch(kernels[0], 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    fail(NULL);
    printf(" %d", launch(kernels[1], 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    fprintf(stderr, "the same launch\n");
    printf(" %d\n", launch(kernels[0], 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    return 0;
}

// An allocation fails, and is repeated after many launches.
static int launches_between(void) {
    void (*fail)(const char *) = function("sim_fail");
    int (*load)(void **, const void *) = function("cuModuleLoadData");
    int (*get)(void **, void *, const char *) = function("cuModuleGetFunction");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **) = function("cuLaunchKernel");
    void *module, *kernel;
    OK(load(&module, "\x7f" "ELF"));
    OK(get(&kernel, module, "delay"));
    unsigned long long ns = 1;
    void *arguments[] = {&ns};
    Pointer pointer;
    fail("cuMemAlloc_v2@*=2");
    printf("allocation %d", cuMemAlloc(&pointer, 40 * MIB));
    fail(NULL);
    for (int i = 0; i < 5000; i++)
        OK(launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    printf(" %d\n", cuMemAlloc(&pointer, 40 * MIB));
    return 0;
}

static int first_context(void) {
    void (*fail)(const char *) = function("sim_fail");
    int (*make)(void **, void *, unsigned, int) = function("cuCtxCreate_v4");
    find_driver();
    OK(cuInit(0));
    fail("cuCtxCreate_v4@*=2");
    void *context;
    printf("context %d\n", make(&context, NULL, 0, 0));
    return 0;
}

int main(int count, char **arguments) {
    const char *way = arguments[1];
    if (!strcmp(way, "context"))
        return first_context();
    start_cuda();
    if (!strcmp(way, "calls"))
        return calls(count - 2, arguments + 2);
    if (!strcmp(way, "kind"))
        return kind(arguments[2], count > 3 ? atoi(arguments[3]) : 9);
    if (!strcmp(way, "again"))
        return again();
    if (!strcmp(way, "launches_between"))
        return launches_between();
    if (!strcmp(way, "probe"))
        return probe(atoi(arguments[2]));
    if (!strcmp(way, "probe_then_fail")) {
        probe(atoi(arguments[2]));
        printf("code %d\n", create(2000 * MIB));
        return 0;
    }
    if (!strcmp(way, "small_after")) {
        printf("code %d\n", linear((size_t)8 << 30));
        printf("code %d\n", linear(4096));
        return 0;
    }
    return 1;
}
