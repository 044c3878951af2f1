// recording WHAT: a program that starts and stops recording itself, and requests snapshots.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static int (*alloc_async)(Pointer *, size_t, void *), (*free_async)(Pointer, void *);
static int (*make_stream)(void **, unsigned), (*host_function)(void *, void (*)(void *), void *);
static atomic_int stop, gate;

static void start(void) {
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&make_stream = dlsym(driver, "cuStreamCreate");
    *(void **)&host_function = dlsym(driver, "cuLaunchHostFunc");
    *(void **)&alloc_async = dlsym(driver, "cuMemAllocAsync");
    *(void **)&free_async = dlsym(driver, "cuMemFreeAsync");
}

static void words(void) {
    CHECK(cachealloc_record("on") == EINVAL && cachealloc_record(NULL) == EINVAL && cachealloc_record("") == EINVAL);
    OK(cachealloc_record("all")); // before CUDA
    OK(cachealloc_record("off"));
    start();
    loop(5);
    OK(cachealloc_record("off"));
}

// Frees blocks from before the recording, and new ones; a segment was released meanwhile.
static void late(void) {
    Pointer before[3], now[3], large;
    start();
    loop(20);
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&before[i], 1000 + 3000000 * i));
    OK(cuMemAlloc(&large, 50 << 20));
    OK(cuMemFree(large));
    OK(cachealloc_record("all"));
    OK(cachealloc_snapshot("0.pickle"));
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&now[i], 500 + 3000000 * i));
    OK(cuMemFree(before[0]));
    OK(cuMemFree(before[1]));
    CHECK(cachealloc_trim(-1) >= 50 << 20);
    OK(cachealloc_snapshot("1.pickle"));
    OK(cachealloc_record("off"));
    OK(cuMemFree(now[0]));
    loop(20);
    OK(cachealloc_snapshot("2.pickle"));
    OK(cachealloc_record("all"));
    OK(cuMemFree(now[1]));
    loop(1);
    OK(cachealloc_snapshot("3.pickle"));
    OK(cachealloc_record("off")); // no snapshot at exit
}

// Memory that the driver serves itself, before the recording begins.
static void driver(void) {
    start();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*managed)(Pointer *, size_t, unsigned) = dlsym(driver, "cuMemAllocManaged");
    int (*create)(Pointer *, size_t, const void *, long long) = dlsym(driver, "cuMemCreate");
    int (*reserve)(Pointer *, size_t, size_t, Pointer, long long) = dlsym(driver, "cuMemAddressReserve");
    int (*map)(Pointer, size_t, size_t, Pointer, long long) = dlsym(driver, "cuMemMap");
    int (*unmap)(Pointer, size_t) = dlsym(driver, "cuMemUnmap");
    int (*create_array)(Pointer *, const void *) = dlsym(driver, "cuArrayCreate_v2");
    int (*destroy_array)(Pointer) = dlsym(driver, "cuArrayDestroy");
    const int on_device[8] = {1, 0, 1};
    const long long floats[3] = {1024, 1024, 1ll << 32 | 0x20};
    Pointer plain, physical, address, array;
    OK(managed(&plain, 1 << 20, 1));
    OK(create(&physical, 2 << 20, on_device, 0));
    OK(reserve(&address, 2 << 20, 0, 0, 0));
    OK(map(address, 2 << 20, 0, physical, 0));
    OK(create_array(&array, floats));
    OK(cachealloc_record("all"));
    OK(cachealloc_snapshot("0.pickle"));
    OK(cuMemFree(plain));
    OK(destroy_array(array));
    OK(cachealloc_snapshot("1.pickle"));
    OK(cachealloc_record("all")); // anew
    OK(unmap(address, 2 << 20));
    OK(cachealloc_snapshot("2.pickle"));
    OK(cachealloc_record("off"));
}

static void wait_at_the_gate(void *unused) {
    while (!gate)
        usleep(1000);
}

// Frees that are pending when the recording begins, and end later.
static void pending(void) {
    void *stream;
    Pointer some[8];
    start();
    OK(make_stream(&stream, 1));
    for (int i = 0; i < 8; i++)
        OK(alloc_async(&some[i], 3000, stream));
    OK(host_function(stream, wait_at_the_gate, NULL));
    for (int i = 0; i < 5; i++)
        OK(cuMemFree(some[i]));
    OK(cachealloc_record("all"));
    OK(cachealloc_snapshot("pending.pickle"));
    gate = 1;
    OK(cuCtxSynchronize());
    loop(3);
    for (int i = 5; i < 8; i++)
        OK(free_async(some[i], stream));
}

static void *busy(void *unused) {
    void *context, *stream;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(make_stream(&stream, 1));
    while (!stop) {
        Pointer a, b;
        loop(5);
        OK(alloc_async(&a, 70000, stream));
        OK(cuMemAlloc(&b, 12 << 20));
        OK(free_async(a, stream));
        OK(cuMemFree(b));
        for (int i = 0; i < 20; i++) { // held back for this thread
            OK(cuMemAlloc(&a, 5000));
            OK(cuMemFree(a));
        }
    }
    return unused;
}

// Switches recording on and off at any moment, while four threads allocate and memory is released.
static void switches(void) {
    pthread_t threads[4];
    char name[64];
    start();
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, busy, NULL));
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 3)
            OK(cachealloc_record_memory_history(i % 8 == 7 ? "all" : "state", "all", "all", 40 + i % 3, 0, i % 5 == 0));
        else
            OK(cachealloc_record(i % 3 ? "all" : "state"));
        usleep(3000);
        if (i % 5 == 0)
            CHECK(cachealloc_trim(-1) >= 0);
        snprintf(name, sizeof name, "%d.pickle", i);
        OK(cachealloc_snapshot(name));
        if (i % 2)
            OK(cachealloc_record("off"));
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        OK(pthread_join(threads[i], NULL));
    OK(cachealloc_record("off"));
}

// Changes all parameters, while threads allocate or not; omitted ones keep their values.
static void parameters(void) {
    int (*record)(const char *, const char *, const char *, uint64_t, int, int) = cachealloc_record_memory_history;
    Pointer a, b, c;
    CHECK(record("on", "all", "all", 9, -1, 0) == EINVAL && record("all", "some", "all", 9, -1, 0) == EINVAL);
    CHECK(record("all", "all", "c", 9, -1, 0) == EINVAL && record("all", "all", "all", 9, 5, 0) == ENODEV);
    CHECK(record("all", "all", "all", 9, -2, 0) == ENODEV && record("all", "all", "all", 9, 1 << 30, 0) == ENODEV);
    start();
    CHECK(record("all", "all", "all", 9, 5, 0) == ENODEV);
    OK(record("all", "all", "all", UINT64_MAX, -1, 0));
    OK(cuMemAlloc(&a, 1000));
    OK(record("all", NULL, "native", UINT64_MAX, -1, 0)); // the entries stay
    OK(cuMemAlloc(&b, 2000));
    OK(cachealloc_snapshot("0.pickle"));
    OK(record("state", "all", NULL, 5, -1, 0)); // what is known of blocks stays
    OK(cachealloc_snapshot("1.pickle"));
    OK(record("all", "alloc", "python", 3, 0, 0));
    OK(cuMemAlloc(&c, 3000));
    OK(cuMemFree(b));
    OK(cachealloc_snapshot("2.pickle"));
    OK(record("all", "state", "all", 1000, -1, 1)); // nothing stays
    OK(cuMemFree(a));
    OK(cachealloc_snapshot("3.pickle"));
    OK(record(NULL, NULL, NULL, 0, -1, 0));
    OK(cachealloc_snapshot("4.pickle"));
    OK(record("all", "all", "all", 0, -1, 0)); // one entry, as in PyTorch
    loop(3);
    OK(cachealloc_snapshot("5.pickle"));
    OK(record("off", "none", "all", 1, -1, 0));
}

// Restricts a recording that goes on to one device of two, and then extends it to both again.
static void devices(void) {
    int (*record)(const char *, const char *, const char *, uint64_t, int, int) = cachealloc_record_memory_history;
    void *contexts[2];
    char name[] = "0.pickle";
    start();
    for (int device = 0; device < 2; device++)
        OK(cuDevicePrimaryCtxRetain(&contexts[device], device));
    OK(record("all", "all", "native", 100, -1, 0));
    for (int step = 0; step < 3; step++) {
        for (int device = 0; device < 2; device++) {
            OK(cuCtxSetCurrent(contexts[device]));
            Pointer block;
            OK(cuMemAlloc(&block, 1000 * (step + 1)));
        }
        OK(cachealloc_snapshot(name));
        name[0]++;
        OK(record("all", "all", "native", 100, step == 0 ? 1 : -1, 0));
    }
    OK(cachealloc_record("off"));
}

static void at_exit(void) {
    start();
    loop(5);
    OK(cachealloc_record("all"));
    loop(5);
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } table[] = {
        {"words", words}, {"late", late}, {"driver", driver}, {"pending", pending}, {"switches", switches},
        {"parameters", parameters}, {"devices", devices}, {"at_exit", at_exit},
    };
    for (size_t i = 0; count > 1 && i < sizeof table / sizeof *table; i++)
        if (!strcmp(arguments[1], table[i].name)) {
            table[i].run();
            return 0;
        }
    return 2;
}
