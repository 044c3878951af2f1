// memory_hooks WHAT: memory hooks, in each way that a program may use them. Prints their calls.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

static int (*cuMemAllocAsync)(Pointer *, size_t, void *);
static int (*cuMemFreeAsync)(Pointer, void *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamBeginCapture)(void *, int);
static int (*cuStreamEndCapture)(void *, void **);
static int (*cuMemPoolCreate)(void **, void *);
static int (*cuMemAllocFromPoolAsync)(Pointer *, size_t, void *, void *);

static void find_more(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemAllocAsync = dlsym(driver, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(driver, "cuMemFreeAsync");
    *(void **)&cuStreamCreate = dlsym(driver, "cuStreamCreate");
    *(void **)&cuStreamBeginCapture = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&cuStreamEndCapture = dlsym(driver, "cuStreamEndCapture");
    *(void **)&cuMemPoolCreate = dlsym(driver, "cuMemPoolCreate");
    *(void **)&cuMemAllocFromPoolAsync = dlsym(driver, "cuMemAllocFromPoolAsync");
}

static void *find(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found);
    return found;
}

#define CALL(name, types, arguments) OK(((int(*) types)find(name))arguments)

static void use_context(void) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

// Addresses and ids by the order of their first appearance: a1, a2, ... and 0.
static uint64_t seen[64];
static int number(uint64_t value) {
    if (!value)
        return 0;
    for (int i = 0; i < 64; i++) {
        if (!seen[i])
            seen[i] = value;
        if (seen[i] == value)
            return i + 1;
    }
    return -1;
}

static void say(void *data, const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("%s", (const char *)data);
    vprintf(format, list);
    va_end(list);
    fflush(stdout);
}

static void alloc_pre(void *data, int device, size_t bytes) { say(data, "alloc_pre %d %zu\n", device, bytes); }
static void alloc_post(void *data, int device, size_t bytes, uint64_t address) {
    say(data, "alloc_post %d %zu %s\n", device, bytes, address ? "there" : "none");
}
static void malloc_pre(void *data, int device, size_t size, size_t bytes) {
    say(data, "malloc_pre %d %zu %zu\n", device, size, bytes);
}
static void malloc_post(void *data, int device, size_t size, size_t bytes, uint64_t address, uint64_t id) {
    int n = number(address);
    say(data, "malloc_post %d %zu %zu #%d #%d\n", device, size, bytes, n, number(id));
}
static void free_pre(void *data, int device, size_t bytes, uint64_t address, uint64_t id) {
    int n = number(address);
    say(data, "free_pre %d %zu #%d #%d\n", device, bytes, n, number(id));
}
static void free_post(void *data, int device, size_t bytes, uint64_t address, uint64_t id) {
    int n = number(address);
    say(data, "free_post %d %zu #%d #%d\n", device, bytes, n, number(id));
}

static void other_allocated(void *data, int device, int kind, size_t bytes, uint64_t address, uint64_t id) {
    int n = number(address);
    say(data, "other_allocated %d %d %zu #%d #%d\n", device, kind, bytes, n, number(id));
}
static void other_freed(void *data, int device, int kind, size_t bytes, uint64_t address, uint64_t id) {
    int n = number(address);
    say(data, "other_freed %d %d %zu #%d #%d\n", device, kind, bytes, n, number(id));
}

#define SAYING(letter)                                                                                                \
    { sizeof(cachealloc_hook), letter, letter, alloc_pre, alloc_post, malloc_pre, malloc_post, free_pre, free_post,   \
      other_allocated, other_freed }

static cachealloc_hook first = SAYING("A "), second = SAYING("B ");

// One allocation that the cache cannot serve, and one that it can.
static void order(void) {
    Pointer a, b;
    OK(cachealloc_hook_push(&first));
    CHECK(cachealloc_hook_push(&first) == EEXIST);
    OK(cuMemAlloc(&a, 1000));
    OK(cachealloc_hook_push(&second));
    OK(cuMemAlloc(&b, 100));
    OK(cachealloc_hook_pop(&first));
    CHECK(cachealloc_hook_pop(&first) == ENOENT);
    OK(cuMemFree(a));
    CHECK(cuMemFree(a) && cuMemFree(b + 8));
    OK(cuMemFree(0));
    OK(cachealloc_hook_pop(&second));
    OK(cuMemFree(b));
    OK(cuMemAlloc(&a, 1000));
}

// Requests more than there is: the driver is asked several times, and each time is reported.
static void failure(void) {
    Pointer a = 7, b;
    OK(cuMemAlloc(&b, 1 << 20));
    OK(cuMemFree(b));
    OK(cachealloc_hook_push(&first));
    CHECK(cuMemAlloc(&a, 200 << 20) == 2); // larger than the device
    OK(cuMemAlloc(&a, 95 << 20));          // once the cache has released its memory
    CHECK(cuMemAlloc(&b, 8 << 20) == 2);
    CHECK(cuMemAlloc(&a, 0) == 1 && cuMemAlloc(NULL, 5) == 1);
    OK(cachealloc_hook_pop(&first));
}

static void async(void) {
    void *stream, *pool;
    Pointer a;
    find_more();
    OK(cuStreamCreate(&stream, 1));
    OK(cachealloc_hook_push(&first));
    OK(cuMemAllocAsync(&a, 3000, stream));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemAllocAsync(&a, 3000, stream));
    OK(cuMemFree(a));
    struct { int type, handles, kind, device; uint64_t more[8]; } props = {1, 0, 1, 0, {0}};
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&a, 5000, pool, stream));
    OK(cuMemFreeAsync(a, stream));
    OK(cachealloc_hook_pop(&first));
    OK(cuMemAllocFromPoolAsync(&a, 5000, pool, stream));
    OK(cachealloc_hook_push(&first));
    OK(cuMemFreeAsync(a, stream));
}

// The address of memory that a hook was notified of is reused after a free without a notification.
static void unheard(void) {
    void *stream, *pool;
    Pointer a, b;
    find_more();
    OK(cuStreamCreate(&stream, 1));
    struct { int type, handles, kind, device; uint64_t more[8]; } props = {1, 0, 1, 0, {0}};
    OK(cuMemPoolCreate(&pool, &props));
    OK(cachealloc_hook_push(&first));
    OK(cuMemAllocFromPoolAsync(&a, 5000, pool, stream));
    OK(cachealloc_hook_pop(&first));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemAllocFromPoolAsync(&b, 4000, pool, stream));
    CHECK(a == b);
    OK(cachealloc_hook_push(&first));
    OK(cuMemFreeAsync(b, stream));
}

// Memory of a graph, from memory nodes and from the cache, and nodes added without a capture.
static void capture(void) {
    struct { int kind, handles, location, device; uint64_t more[9], access[2], bytes; Pointer address; } node = {
        1, 0, 1, 0, {0}, {0}, 8000, 0};
    struct { int kind, reserved[3]; uint64_t body[30]; } any = {10, {0}, {0}};
    void *stream, *graph, *made;
    Pointer a, b;
    find_more();
    OK(cuStreamCreate(&stream, 1));
    OK(cachealloc_hook_push(&first));
    OK(cuStreamBeginCapture(stream, 2));
    OK(cuMemAllocAsync(&a, 3000, stream));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemAlloc(&b, 1000));
    OK(cuMemFree(b));
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph);
    CALL("cuGraphAddMemAllocNode", (void **, void *, void *, size_t, void *), (&made, graph, 0, 0, &node));
    CHECK(((int(*)(void **, void *, void *, size_t, void *))find("cuGraphAddMemAllocNode"))(&made, graph, 0, 0, 0) == 1);
    CALL("cuGraphAddMemFreeNode", (void **, void *, void *, size_t, Pointer), (&made, graph, 0, 0, node.address));
    memcpy(any.body, &node, sizeof node);
    CALL("cuGraphAddNode_v2", (void **, void *, void *, void *, size_t, void *), (&made, graph, 0, 0, 0, &any));
    OK(cachealloc_hook_pop(&first));
    puts("done");
}

// Memory of each other kind: reported when it exists, and when it is gone; failures are not
// reported.
static void kinds(void) {
    struct { int type, handles, kind, device; uint64_t more[3]; } properties = {1, 0, 1, 0, {0}};
    struct { size_t width, height; int format; unsigned channels; } flat = {64, 64, 0x20, 4};
    static char own[8192] __attribute__((aligned(4096)));
    void *pinned, *array, *refused = NULL;
    Pointer managed, addresses;
    uint64_t physical;
    find_more();
    OK(cachealloc_hook_push(&first));
    CALL("cuMemAllocManaged", (Pointer *, size_t, unsigned), (&managed, 1000, 1));
    OK(cuMemFree(managed));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 2000, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
    CALL("cuMemHostRegister_v2", (void *, size_t, unsigned), (own, sizeof own, 0));
    CALL("cuMemHostUnregister", (void *), (own));
    CALL("cuArrayCreate_v2", (void **, void *), (&array, &flat));
    CALL("cuArrayDestroy", (void *), (array));
    CALL("cuMemCreate", (uint64_t *, size_t, void *, uint64_t), (&physical, 4 << 20, &properties, 0));
    CALL("cuMemAddressReserve", (Pointer *, size_t, size_t, Pointer, long), (&addresses, 4 << 20, 0, 0, 0));
    CALL("cuMemMap", (Pointer, size_t, size_t, uint64_t, long), (addresses, 4 << 20, 0, physical, 0));
    // The memory is mapped, and stays.
    CALL("cuMemRelease", (uint64_t), (physical));
    CALL("cuMemUnmap", (Pointer, size_t), (addresses, 4 << 20));
    CHECK(((int (*)(void **, void *))find("cuArrayCreate_v2"))(&refused, NULL));
    CHECK(((int (*)(void *))find("cuArrayDestroy"))(array));
    // From here on no hook is registered.
    OK(cachealloc_hook_pop(&first));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 2000, 0));
    OK(cachealloc_hook_push(&first));
    CALL("cuMemFreeHost", (void *), (pinned));
    OK(cachealloc_hook_pop(&first));
}

// Pitched memory is reported as linear memory.
static void pitched(void) {
    Pointer a;
    size_t pitch;
    OK(cachealloc_hook_push(&first));
    for (int i = 0; i < 2; i++) {
        CALL("cuMemAllocPitch_v2", (Pointer *, size_t *, size_t, size_t, unsigned), (&a, &pitch, 100, 10, 4));
        OK(cuMemFree(a));
    }
    OK(cachealloc_hook_pop(&first));
}

// A callback for other kinds of memory allocates, as any callback may.
static void allocates_meanwhile(void *data, int device, int kind, size_t bytes, uint64_t address, uint64_t id) {
    void *pinned;
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 100, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
    ++*(int *)data;
}
static void nested(void) {
    int heard = 0;
    void *pinned;
    cachealloc_hook hook = {.size = sizeof hook, .data = &heard};
    hook.other_allocated = hook.other_freed = allocates_meanwhile;
    OK(cachealloc_hook_push(&hook));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 2000, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
    OK(cachealloc_hook_pop(&hook));
    printf("heard %d\n", heard);
}

// A program built with the first header: bytes past its table are not part of it.
static void older(void) {
    struct { cachealloc_hook hook; } table = {first};
    void *pinned;
    Pointer a;
    table.hook.size = offsetof(cachealloc_hook, other_allocated);
    memset(&table.hook.other_allocated, 0x55, 2 * sizeof(void *));
    OK(cachealloc_hook_push(&table.hook));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 2000, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
    OK(cuMemAlloc(&a, 1000));
    OK(cachealloc_hook_pop(&table.hook));
    // A table whose last callback is there only in part.
    table.hook.size += sizeof(void *) + 1;
    table.hook.other_allocated = other_allocated;
    OK(cachealloc_hook_push(&table.hook));
    CALL("cuMemHostAlloc", (void **, size_t, unsigned), (&pinned, 2000, 0));
    CALL("cuMemFreeHost", (void *), (pinned));
    OK(cachealloc_hook_pop(&table.hook));
}

// Every callback allocates and frees, and checks that its own calls do not call it.
static _Thread_local int depth, calls[6];
static _Thread_local unsigned size;
static atomic_int refused;

static void work(int which) {
    Pointer a, b;
    CHECK(depth++ == 0);
    calls[which]++;
    size = size * 5 + 1;
    // The second request is so large that it fails sometimes, in the middle of another thread's
    // retries.
    OK(cuMemAlloc(&a, 1 + size % 3000));
    if (cuMemAlloc(&b, (size_t)(1 + size % 7) << 20))
        refused++;
    else
        OK(cuMemFree(b));
    OK(cuMemFree(a));
    depth--;
}
static void alloc_pre_works(void *d, int x, size_t y) { work(0); }
static void alloc_post_works(void *d, int x, size_t y, uint64_t z) { work(1); }
static void malloc_pre_works(void *d, int x, size_t y, size_t z) { work(2); }
static void malloc_post_works(void *d, int x, size_t y, size_t z, uint64_t u, uint64_t v) { work(3); }
static void free_pre_works(void *d, int x, size_t y, uint64_t u, uint64_t v) { work(4); }
static void free_post_works(void *d, int x, size_t y, uint64_t u, uint64_t v) { work(5); }
static const cachealloc_hook working = {sizeof working,    "works",           NULL,
                                        alloc_pre_works,   alloc_post_works,  malloc_pre_works,
                                        malloc_post_works, free_pre_works,    free_post_works};

static void *with_work(void *unused) {
    Pointer a, big;
    int failed = 0;
    use_context();
    OK(cachealloc_hook_push(&working));
    for (unsigned i = 0; i < 60; i++) {
        OK(cuMemAlloc(&a, 100 + 700 * i % 50000));
        if (cuMemAlloc(&big, (size_t)(20 + i % 30) << 20))
            failed++;
        else
            OK(cuMemFree(big));
        OK(cuMemFree(a));
    }
    CHECK(calls[0] && calls[0] == calls[1] && calls[2] == 120 && calls[3] == 120);
    CHECK(calls[4] == calls[5] && calls[4] == 120 - failed);
    OK(cachealloc_hook_pop(&working));
    return unused;
}

static void reentrant(void) {
    pthread_t threads[4];
    Pointer all;
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, with_work, NULL));
    for (int i = 0; i < 4; i++)
        OK(pthread_join(threads[i], NULL));
    // Nothing is lost: all memory of the device is available.
    OK(cuMemAlloc(&all, 90 << 20));
    OK(cuMemFree(all));
    puts("done");
}

// Three segments: one for small blocks, one for the larger blocks of the callbacks, and one for the
// program's own large block.
static void served(void) {
    static const cachealloc_hook quiet = {sizeof quiet};
    Pointer a, b;
    OK(cuMemAlloc(&a, 1000));
    OK(cachealloc_hook_push(&quiet));
    OK(cachealloc_hook_push(&working));
    OK(cuMemAlloc(&b, 30 << 20));
    OK(cuMemFree(b));
    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc(&b, 1000));
        OK(cuMemFree(b));
    }
    OK(cuMemFree(a));
    CHECK(calls[0] == 1 && calls[2] == 101);
    puts("done");
}

// A callback waits for a thread whose request the cache cannot serve.
static void *allocates(void *unused) {
    Pointer a;
    use_context();
    OK(cuMemAlloc(&a, 30 << 20));
    OK(cuMemFree(a));
    return unused;
}
static void waits_for_thread(void *d, int x, size_t y) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, allocates, NULL));
    OK(pthread_join(thread, NULL));
}
static void waiting(void) {
    Pointer a;
    cachealloc_hook hook = {.size = sizeof hook, .alloc_preprocess = waits_for_thread};
    OK(cachealloc_hook_push(&hook));
    OK(cuMemAlloc(&a, 5 << 20));
    OK(cuMemFree(a));
    OK(cachealloc_hook_pop(&hook));
    puts("done");
}

// Hooks are pushed and popped inside a callback.
static void pushes(void *data, int device, size_t size, size_t bytes) {
    OK(cachealloc_hook_push(&second));
    OK(cachealloc_hook_pop(&first));
}
static void changes(void) {
    Pointer a;
    cachealloc_hook hook = {.size = sizeof hook, .malloc_preprocess = pushes};
    OK(cachealloc_hook_push(&hook));
    OK(cachealloc_hook_push(&first));
    OK(cuMemAlloc(&a, 1000)); // neither is called
    OK(cachealloc_hook_pop(&hook));
    OK(cuMemFree(a)); // `second` is
}

static void *hears_nothing(void *unused) {
    allocates(NULL);
    return unused;
}
static void *leaves_a_hook(void *unused) {
    OK(cachealloc_hook_push(&second));
    return unused;
}
static void threads(void) {
    pthread_t thread;
    OK(cachealloc_hook_push(&first));
    OK(pthread_create(&thread, NULL, hears_nothing, NULL));
    OK(pthread_join(thread, NULL));
    OK(pthread_create(&thread, NULL, leaves_a_hook, NULL));
    OK(pthread_join(thread, NULL));
    Pointer a;
    OK(cuMemAlloc(&a, 1000));
}

static void limits(void) {
    cachealloc_hook many[17] = {{0}}, bad = {.size = offsetof(cachealloc_hook, other_allocated) - 1};
    CHECK(cachealloc_hook_push(NULL) == EINVAL && cachealloc_hook_push(&bad) == EINVAL);
    CHECK(cachealloc_hook_pop(NULL) == ENOENT);
    for (int i = 0; i < 16; i++) {
        many[i].size = sizeof bad;
        OK(cachealloc_hook_push(&many[i]));
    }
    many[16].size = sizeof bad;
    CHECK(cachealloc_hook_push(&many[16]) == ENOMEM);
    Pointer a;
    OK(cuMemAlloc(&a, 1000)); // no callback at all
    for (int i = 0; i < 16; i++)
        OK(cachealloc_hook_pop(&many[i]));
    puts("done");
}

static void in_child(void) {
    Pointer a;
    OK(cachealloc_hook_push(&first));
    pid_t child = fork();
    if (!child) {
        int code = cuMemAlloc(&a, 1000);
        CHECK(cachealloc_hook_push(&second) == ENOTSUP);
        cachealloc_hook_pop(&first);
        _exit(code ? 3 : 4);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("child %d\n", WEXITSTATUS(status));
}

// Callbacks that break the contract: the thread exits, is cancelled, or jumps away.
static jmp_buf away;
static void exits_thread(void *d, int x, size_t y) { pthread_exit((void *)5); }
static void is_cancelled(void *d, int x, size_t y) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
    puts("goes on");
    fflush(stdout);
}
static void jumps(void *d, int x, size_t y) { longjmp(away, 1); }

static void (*breaks)(void *, int, size_t);
static void *broken_thread(void *unused) {
    Pointer a = 0;
    cachealloc_hook hook = {.size = sizeof hook, .name = "broken", .alloc_preprocess = breaks};
    use_context();
    OK(cachealloc_hook_push(&hook));
    if (!setjmp(away))
        OK(cuMemAlloc(&a, 5 << 20));
    else
        OK(cuMemAlloc(&a, 5 << 20));
    OK(cuMemFree(a));
    cachealloc_hook_pop(&hook);
    puts("served");
    fflush(stdout);
    pthread_testcancel();
    return (void *)7;
}
static void broken(void) {
    pthread_t thread;
    void *result;
    OK(pthread_create(&thread, NULL, broken_thread, NULL));
    OK(pthread_join(thread, &result));
    printf("thread %ld\n", (long)result);
    OK(pthread_create(&thread, NULL, allocates, NULL));
    OK(pthread_join(thread, &result));
}

// Used with the hook of the process.
static void plain(void) {
    Pointer a;
    OK(cuMemAlloc(&a, 1000));
    OK(cuMemFree(a));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, allocates, NULL));
    OK(pthread_join(thread, NULL));
    puts("done");
}

// For a count of instructions: a hook that was removed has no cost.
static void gone(void) {
    Pointer a;
    OK(cachealloc_hook_push(&working));
    OK(cachealloc_hook_pop(&working));
    for (int i = 0; i < 1000; i++) {
        OK(cuMemAlloc(&a, 1000));
        OK(cuMemFree(a));
    }
    puts("done");
}

// A callback waits for a thread that needs the memory unmapped for the reported request.
static int (*cuMemCreate)(uint64_t *, size_t, void *, uint64_t);
static int creates_code = -1;
static double seconds;
static void *creates(void *unused) {
    struct { int type, handles, kind, device; uint64_t more[3]; } props = {1, 0, 1, 0, {0}};
    struct timespec begin, end;
    uint64_t handle;
    use_context();
    clock_gettime(CLOCK_MONOTONIC, &begin);
    creates_code = cuMemCreate(&handle, 30 << 20, &props, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    seconds = end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) * 1e-9;
    return unused;
}
static void waits_for_creator(void *d, int x, size_t y) {
    pthread_t thread;
    if (creates_code != -1)
        return;
    OK(pthread_create(&thread, NULL, creates, NULL));
    OK(pthread_join(thread, NULL));
}
static void unmapped(void) {
    Pointer a, b, c;
    cachealloc_hook hook = {.size = sizeof hook, .alloc_preprocess = waits_for_creator};
    *(void **)&cuMemCreate = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemCreate");
    OK(cuMemAlloc(&a, 40 << 20));
    OK(cuMemAlloc(&b, 40 << 20));
    OK(cuMemFree(a));
    OK(cachealloc_hook_push(&hook));
    printf("%d\n", cuMemAlloc(&c, 45 << 20));
    OK(cachealloc_hook_pop(&hook));
    printf("created %d, %s\n", creates_code, seconds < 2 ? "at once" : "late");
}

static void dies(void *d, int x, size_t y) {
    int (*reset)(int) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxReset_v2");
    OK(reset(0));
}
static void context_ends(void) {
    Pointer a;
    cachealloc_hook hook = {.size = sizeof hook, .alloc_preprocess = dies};
    OK(cachealloc_hook_push(&hook));
    printf("answer %d\n", cuMemAlloc(&a, 5 << 20));
    OK(cachealloc_hook_pop(&hook));
    use_context();
    OK(cuMemAlloc(&a, 5 << 20));
    OK(cuMemFree(a));
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } table[] = {
        {"order", order},     {"failure", failure}, {"async", async},     {"reentrant", reentrant},
        {"waiting", waiting}, {"changes", changes}, {"threads", threads}, {"limits", limits},
        {"child", in_child},  {"broken", broken},   {"plain", plain},     {"gone", gone},
        {"context_ends", context_ends}, {"capture", capture}, {"served", served},
        {"unheard", unheard}, {"unmapped", unmapped}, {"kinds", kinds}, {"pitched", pitched}, {"older", older},
        {"nested", nested},
    };
    CHECK(count > 1);
    if (count > 2)
        breaks = !strcmp(arguments[2], "exit") ? exits_thread : !strcmp(arguments[2], "cancel") ? is_cancelled : jumps;
    start_cuda();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(arguments[1], table[i].name)) {
            table[i].run();
            return 0;
        }
    return 2;
}
