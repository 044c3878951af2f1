// Unusual but legal ways of using a process, one per argument.
#include "../check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int stop, freed_by_handler;

static int (*cuStreamCreate)(void **, unsigned);
static int (*cuMemsetD8Async)(Pointer, unsigned char, size_t, void *);
static int (*cuMemAllocAsync)(Pointer *, size_t, void *);
static int (*cuMemFreeAsync)(Pointer, void *);

static void find_streams(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuStreamCreate = dlsym(driver, "cuStreamCreate");
    *(void **)&cuMemsetD8Async = dlsym(driver, "cuMemsetD8Async");
    *(void **)&cuMemAllocAsync = dlsym(driver, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(driver, "cuMemFreeAsync");
}

static void use_context(void) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

static void *allocate_until_stopped(void *unused) {
    use_context();
    while (!stop)
        loop(10);
    return unused;
}

// ---- threads

static void give_back(void *block) {
    OK(cuMemFree(*(Pointer *)block));
    freed_by_handler++;
}

static void *allocate_until_cancelled(void *unused) {
    use_context();
    for (;;) {
        Pointer block;
        OK(cuMemAlloc(&block, 3 << 20));
        pthread_cleanup_push(give_back, &block);
        loop(1);
        pthread_testcancel();
        pthread_cleanup_pop(0);
        OK(cuMemFree(block));
    }
    return unused;
}

// Threads are cancelled in the middle of their loops, and their handlers free what they hold.
// Nothing is lost: at the end one block takes most of a small device.
static int cancel(void) {
    start_cuda();
    for (int round = 0; round < 15; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            OK(pthread_create(&threads[i], NULL, allocate_until_cancelled, NULL));
        usleep(2000);
        for (int i = 0; i < 4; i++) {
            void *result;
            OK(pthread_cancel(threads[i]));
            OK(pthread_join(threads[i], &result));
            CHECK(result == PTHREAD_CANCELED);
        }
    }
    Pointer most;
    OK(cuMemAlloc(&most, 50 << 20));
    printf("%d freed by their handlers\n", (int)freed_by_handler);
    return 0;
}

static void *leave_work_behind(void *unused) {
    use_context();
    void *stream;
    OK(cuStreamCreate(&stream, 1));
    Pointer blocks[4];
    for (int i = 0; i < 4; i++) {
        if (i % 2)
            OK(cuMemAllocAsync(&blocks[i], 2 << 20, stream));
        else
            OK(cuMemAlloc(&blocks[i], 3 << 20));
        OK(cuMemsetD8Async(blocks[i], i, 1 << 20, stream));
    }
    OK(cuMemFreeAsync(blocks[0], stream));
    OK(cuMemFree(blocks[1]));
    OK(cuMemFree(blocks[2]));
    OK(cuMemFreeAsync(blocks[3], stream));
    return unused;
}

// Threads end right after frees of every kind, while the work before the frees is still in flight.
static int pending(void) {
    start_cuda();
    find_streams();
    for (int round = 0; round < 10; round++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            OK(pthread_create(&threads[i], NULL, leave_work_behind, NULL));
        for (int i = 0; i < 3; i++)
            OK(pthread_join(threads[i], NULL));
    }
    OK(cuCtxSynchronize());
    Pointer most;
    OK(cuMemAlloc(&most, 200 << 20));
    puts("all is free");
    return 0;
}

// ---- plugins

static void *open_plugin(const char *path, int flags, const char *name) {
    void *plugin = dlopen(path, RTLD_NOW | flags);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    void *found = dlsym(plugin, name);
    CHECK(found);
    return found;
}

// Memory that a plugin allocated outlives the plugin.
static int outlives(const char *path) {
    start_cuda();
    Pointer blocks[20];
    for (int i = 0; i < 20; i++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(plugin);
        Pointer (*allocate)(size_t) = dlsym(plugin, "allocate");
        blocks[i] = allocate(1000 << i % 12);
        OK(dlclose(plugin));
        loop(2);
    }
    for (int i = 0; i < 20; i++) {
        OK(cuMemsetD8(blocks[i], 7, 1000));
        OK(cuMemFree(blocks[i]));
    }
    puts("all freed");
    return 0;
}

static const char *stormed;
static void *open_and_close(void *unused) {
    use_context();
    for (int i = 0; i < 100; i++) {
        void *plugin = dlopen(stormed, RTLD_NOW | RTLD_LOCAL);
        CHECK(plugin);
        loop(2);
        OK(dlclose(plugin));
    }
    return unused;
}

// Two threads open and close libraries that allocate in their constructors and destructors, with
// the loader's lock held; two other threads allocate meanwhile.
static int storm(const char *path) {
    start_cuda();
    stormed = path;
    setenv("ALLOCATE_IN_CONSTRUCTOR", "1", 1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, i % 2 ? open_and_close : allocate_until_stopped, NULL));
    OK(pthread_join(threads[1], NULL));
    OK(pthread_join(threads[3], NULL));
    stop = 1;
    OK(pthread_join(threads[0], NULL));
    OK(pthread_join(threads[2], NULL));
    puts("over");
    return 0;
}

// The plugin is linked against the driver: prints whose functions its calls reach.
static int linked(const char *path) {
    const char *(*owner)(void) = open_plugin(path, RTLD_GLOBAL, "owner");
    void (*work)(int) = open_plugin(path, RTLD_GLOBAL, "work");
    start_cuda();
    work(50);
    printf("linked functions are in %s\n", owner());
    return 0;
}

// The plugin prefers its own libraries' functions to the process's.
static int deep(const char *path) {
    start_cuda();
    const char *(*owner)(void) = open_plugin(path, RTLD_LOCAL | RTLD_DEEPBIND, "owner");
    void (*work)(int) = open_plugin(path, RTLD_LOCAL | RTLD_DEEPBIND, "work");
    Pointer (*allocate)(size_t) = open_plugin(path, RTLD_LOCAL | RTLD_DEEPBIND, "allocate");
    int (*release)(Pointer) = open_plugin(path, RTLD_LOCAL | RTLD_DEEPBIND, "release");
    work(50);
    loop(50);
    Pointer theirs = allocate(1000);
    OK(cuMemsetD8(theirs, 1, 1000));
    OK(cuMemFree(theirs));
    Pointer ours[3];
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&ours[i], 1000));
    // The highest block does not begin a segment.
    for (int i = 1; i < 3; i++)
        if (ours[i] > ours[0]) {
            Pointer higher = ours[i];
            ours[i] = ours[0], ours[0] = higher;
        }
    int freed = release(ours[0]);
    printf("in %s, our block freed by it: %d\n", owner(), freed);
    return 0;
}

// ---- contexts

// The last release ends the primary context, with live and cached blocks in it and a free whose
// work is still in flight. Its addresses are available afterwards.
static int release(void) {
    find_driver();
    find_streams();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *stream;
    int (*release)(int) = (int (*)(int))dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
    int (*range)(Pointer *, size_t *, Pointer) =
        (int (*)(Pointer *, size_t *, Pointer))dlsym(driver, "cuMemGetAddressRange_v2");
    OK(cuInit(0));
    for (int round = 0; round < 5; round++) {
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        OK(cuStreamCreate(&stream, 1));
        Pointer live, large, freed, base;
        size_t bytes;
        loop(20);
        OK(cuMemAlloc(&live, 1000));
        OK(cuMemAlloc(&large, 30 << 20));
        OK(cuMemAlloc(&freed, 12 << 20));
        OK(cuMemsetD8Async(freed, 1, 12 << 20, stream));
        OK(cuMemFree(freed));
        OK(release(0));
        int gone = range(&base, &bytes, live), freed_late = cuMemFree(live);
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        printf("%d %d, again: %d %d %d\n", gone, freed_late, range(&base, &bytes, live), cuMemFree(live),
               cuMemFree(large));
        Pointer most;
        OK(cuMemAlloc(&most, 50 << 20));
        OK(cuMemsetD8(most, round, 50 << 20));
        OK(cuMemFree(most));
        OK(release(0));
    }
    return 0;
}

// ---- children

// A program that has used CUDA starts a shell, and another program that uses CUDA.
static int children(char **arguments) {
    start_cuda();
    loop(20);
    fflush(stdout);
    CHECK(system("echo \"from a shell: $(echo inner)\"") == 0);
    pid_t child = fork();
    if (!child) {
        execl(arguments[0], arguments[0], "use", NULL);
        _exit(9);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    loop(20);
    return 0;
}

static int use(void) {
    start_cuda();
    loop(20);
    printf("allocations by %s\n", file_of((void *)cuMemAlloc));
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *way = arguments[1], *path = arguments[2];
#define WAY(name, call) if (!strcmp(way, #name)) return call
    WAY(cancel, cancel());
    WAY(pending, pending());
    WAY(outlives, outlives(path));
    WAY(storm, storm(path));
    WAY(linked, linked(path));
    WAY(deep, deep(path));
    WAY(release, release());
    WAY(children, children(arguments));
    WAY(use, use());
    return 2;
}
