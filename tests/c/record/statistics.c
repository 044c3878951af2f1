// Programs whose statistics are read; one per argument.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define MIB (1l << 20)

static int (*cuMemAllocAsync)(Pointer *, size_t, void *), (*cuMemFreeAsync)(Pointer, void *);
static int (*cuStreamSynchronize)(void *);
static atomic_int stop;

static long long stat(const char *key) {
    int64_t value = -77;
    errno = 77;
    OK(cachealloc_stat(0, key, &value));
    CHECK(errno == 77);
    return value;
}

// Checks all statistics with this prefix, which are PyTorch's counters.
static void expect(const char *name, long long current, long long allocated, long long freed) {
    const char *metrics[] = {"current", "allocated", "freed"};
    long long wanted[] = {current, allocated, freed};
    for (int i = 0; i < 3; i++) {
        char key[100];
        snprintf(key, sizeof key, "%s.%s", name, metrics[i]);
        long long found = stat(key);
        if (found != wanted[i]) {
            fprintf(stderr, "%s is %lld, not %lld\n", key, found, wanted[i]);
            exit(1);
        }
    }
}

static void expect_all(const char *pool, long long count, long long bytes, long long requested, long long counts,
                       long long sums, long long requests) {
    const char *names[] = {"allocation", "active", "allocated_bytes", "active_bytes", "requested_bytes"};
    long long current[] = {count, count, bytes, bytes, requested}, all[] = {counts, counts, sums, sums, requests};
    for (int i = 0; i < 5; i++) {
        char name[100];
        snprintf(name, sizeof name, "%s.%s", names[i], pool);
        expect(name, current[i], all[i], all[i] - current[i]);
    }
}

// Blocks in a thread cache count as free, whatever size the program had requested when it got them.
static int lists(void) {
    start_cuda();
    OK(cachealloc_reset_accumulated_stats(-1));
    Pointer kept, other;
    long long requests = 0;
    for (int i = 0; i < 30; i++) {
        OK(cuMemAlloc(&kept, 1000 - i));
        expect_all("small_pool", 1, 1024, 1000 - i, i + 1, 1024 * (i + 1), requests += 1000 - i);
        OK(cuMemFree(kept));
        expect_all("small_pool", 0, 0, 0, i + 1, 1024 * (i + 1), requests);
    }
    // Ten blocks at once: more than a thread cache holds, and one of them stays.
    Pointer many[10];
    for (int i = 0; i < 10; i++) {
        OK(cuMemAlloc(&many[i], 900 + i));
        requests += 900 + i;
    }
    for (int i = 1; i < 10; i++)
        OK(cuMemFree(many[i]));
    expect_all("small_pool", 1, 1024, 900, 40, 40 * 1024, requests);
    OK(cuMemAlloc(&other, 3 * MIB));
    expect_all("all", 2, 3 * MIB + 1024, 3 * MIB + 900, 41, 3 * MIB + 40 * 1024, 3 * MIB + requests);
    expect_all("large_pool", 1, 3 * MIB, 3 * MIB, 1, 3 * MIB, 3 * MIB);
    CHECK(stat("allocated_bytes.all.peak") == 3 * MIB + 1024 || stat("allocated_bytes.all.peak") == 10 * 1024 + 0);
    OK(cachealloc_reset_peak_stats(0));
    CHECK(stat("allocated_bytes.all.peak") == 3 * MIB + 1024);
    // The thread cache serves a larger request than the block's previous one: a peak that was
    // reported does not change.
    for (int size = 600; size <= 1000; size += 20) {
        OK(cuMemAlloc(&kept, size));
        long long peak = stat("requested_bytes.small_pool.peak");
        OK(cuMemFree(kept));
        CHECK(stat("requested_bytes.small_pool.peak") == peak);
    }
    requests += 21 * 800;
    // A block that went through a thread cache is freed on a stream: it never returns to that
    // cache.
    for (int i = 0; i < 12; i++) {
        OK(cuMemAlloc(&kept, 2000 - i));
        OK(cuMemFree(kept));
        requests += 2000 - i;
    }
    OK(cuMemAlloc(&kept, 1700));
    OK(cuMemsetD8(kept, 1, 1000));
    OK(cuMemFreeAsync(kept, NULL));
    OK(cuStreamSynchronize(NULL));
    requests += 1700;
    OK(cuMemAlloc(&kept, 5 * MIB));
    OK(cuMemFree(kept));
    OK(cuMemFree(many[0]));
    expect_all("small_pool", 0, 0, 0, 53 + 21, (40 + 21) * 1024 + 13 * 2048, requests);
    // Totals are reset while blocks from thread caches are alive.
    for (int i = 0; i < 12; i++) {
        OK(cuMemAlloc(&kept, 4096 - i));
        if (i < 11)
            OK(cuMemFree(kept));
    }
    OK(cachealloc_reset_accumulated_stats(0));
    CHECK(stat("requested_bytes.small_pool.current") == 4096 - 11);
    CHECK(stat("requested_bytes.small_pool.allocated") == 0 && stat("requested_bytes.small_pool.freed") == 0);
    OK(cuMemFree(kept));
    CHECK(stat("requested_bytes.small_pool.current") == 0);
    CHECK(stat("requested_bytes.small_pool.freed") == 4096 - 11);
    return 0;
}

static int api(void) {
    int64_t value = -77;
    CHECK(cachealloc_stat && cachealloc_stats && cachealloc_reset_peak_stats && cachealloc_reset_accumulated_stats);
    CHECK(cachealloc_stat(0, "num_ooms", &value) == ENODEV && value == -77);
    CHECK(cachealloc_reset_peak_stats(0) == ENODEV);
    OK(cachealloc_reset_peak_stats(-1));
    start_cuda();
    Pointer a, b;
    OK(cuMemAlloc(&a, 1000));
    OK(cuMemAlloc(&b, 30 * MIB));
    CHECK(cachealloc_stat(0, "no_such_key", &value) == ENOENT && value == -77);
    CHECK(cachealloc_stat(1, "num_ooms", &value) == ENODEV && value == -77);
    CHECK(cachealloc_stat(0, NULL, &value) == EINVAL && cachealloc_stat(0, "num_ooms", NULL) == EINVAL);
    CHECK(stat("reserved_bytes.all.current") == 32 * MIB && stat("num_device_alloc") == 2);
    CHECK(stat("max_split_size") == -1 && stat("segment.small_pool.current") == 1);
    CHECK(cuMemAlloc(&a, 1l << 50) == 2 && stat("num_ooms") == 1);
    size_t bytes = cachealloc_stats(NULL, 0);
    CHECK(bytes > 5000);
    char *text = malloc(bytes + 1000);
    memset(text, 1, bytes + 1000);
    CHECK(cachealloc_stats(text, 100) == bytes && strlen(text) == 99 && text[100] == 1);
    CHECK(cachealloc_stats(text, 1) == bytes && !*text);
    size_t now = cachealloc_stats(text, bytes + 1000);
    CHECK(strlen(text) == now - 1 && now < bytes + 1000);
    fputs(text, stdout);
    fflush(stdout);
    pid_t child = fork();
    if (!child)
        _exit(cachealloc_stat(0, "num_ooms", &value) == ENOTSUP && !cachealloc_stats(NULL, 0) ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

// With red_zone:64 the allocator's requests include the zone each time; pairs of one size.
static int zones(void) {
    start_cuda();
    Pointer pointer;
    for (long long i = 0, requests = 0; i < 30; i++) {
        OK(cuMemAlloc(&pointer, 1000 - i));
        requests += 1064 - i;
        expect_all("small_pool", 1, 1536, 1064 - i, i + 1, 1536 * (i + 1), requests);
        OK(cuMemFree(pointer));
        expect_all("small_pool", 0, 0, 0, i + 1, 1536 * (i + 1), requests);
    }
    return 0;
}

// A context ends, and another one begins.
static int contexts(void) {
    int (*reset)(int) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDevicePrimaryCtxReset_v2");
    start_cuda();
    Pointer kept;
    OK(cuMemAlloc(&kept, 30 * MIB));
    OK(reset(0));
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&kept, 10 * MIB));
    expect("allocated_bytes.all", 10 * MIB, 40 * MIB, 30 * MIB);
    expect("reserved_bytes.all", 10 * MIB, 40 * MIB, 30 * MIB);
    CHECK(stat("allocated_bytes.all.peak") == 30 * MIB);
    return 0;
}

static __attribute__((noinline)) void hold_two(Pointer *a) {
    OK(cuMemAlloc(&a[0], 20 * MIB));
    OK(cuMemAlloc(&a[1], 2 * MIB));
}

// The peak is in the middle; a later one counts if peaks were reset.
static int holders(int anew) {
    start_cuda();
    Pointer a[2], later, last;
    hold_two(a);
    OK(cuMemFree(a[0]));
    OK(cuMemAlloc(&later, 5 * MIB));
    if (anew)
        OK(cachealloc_reset_peak_stats(0));
    OK(cuMemAlloc(&last, 3 * MIB));
    OK(cuMemFree(last));
    return 0;
}

static sem_t listed, freed;

// Leaves 2 MiB in this thread's cache, and takes them again later.
static void *use_list(void *context) {
    Pointer block;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 12; i++) {
        OK(cuMemAlloc(&block, 2 * MIB));
        OK(cuMemFree(block));
    }
    OK(sem_post(&listed));
    OK(sem_wait(&freed));
    OK(cuMemAlloc(&block, 2 * MIB));
    return NULL;
}

// The program never holds more than 6 MiB: a block freed on a stream no longer counts when a thread
// cache hands out its block.
static int peak(void) {
    start_cuda();
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(sem_init(&listed, 0, 0));
    OK(sem_init(&freed, 0, 0));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, use_list, context));
    OK(sem_wait(&listed));
    Pointer block;
    OK(cuMemAlloc(&block, 6 * MIB));
    OK(cuMemsetD8(block, 1, 1000));
    OK(cuMemFreeAsync(block, NULL));
    OK(sem_post(&freed));
    OK(pthread_join(thread, NULL));
    expect("allocated_bytes.all", 2 * MIB, 32 * MIB, 30 * MIB);
    CHECK(stat("allocated_bytes.all.peak") == 6 * MIB);
    return 0;
}

static sem_t turns[2];
static Pointer held;

// Waits until the other thread has done its part; `number` is this thread's.
static void other_turn(int number) {
    OK(sem_post(&turns[!number]));
    OK(sem_wait(&turns[number]));
}

// Three times, holds the block of its thread cache in one turn and frees it in the next; then
// requests more from the core.
static void *hold_in_turn(void *context) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 12; i++) {
        OK(cuMemAlloc(&held, 5 * MIB));
        OK(cuMemFree(held));
    }
    for (int i = 0; i < 3; i++) {
        other_turn(1);
        OK(cuMemAlloc(&held, 5 * MIB));
        other_turn(1);
        OK(cuMemFree(held));
    }
    other_turn(1);
    OK(cuMemAlloc(&held, 7 * MIB));
    OK(sem_post(&turns[0]));
    return NULL;
}

// Holds this many MiB at once, in blocks of 2 MiB; repeats this.
static void hold_mib(int mib, int times) {
    Pointer blocks[5];
    while (times--) {
        for (int i = 0; i < mib / 2; i++)
            OK(cuMemAlloc(&blocks[i], 2 * MIB));
        for (int i = 0; i < mib / 2; i++)
            OK(cuMemFree(blocks[i]));
    }
}

static void expect_peak(int mib) {
    long long found = stat("allocated_bytes.all.peak");
    if (found != mib * MIB) {
        fprintf(stderr, "the peak is %lld, not %d MiB\n", found, mib);
        exit(1);
    }
}

// The peak counts what two threads hold at once from their caches.
static int peak_of_lists(void) {
    start_cuda();
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(sem_init(&turns[0], 0, 0));
    OK(sem_init(&turns[1], 0, 0));
    OK(cuMemAlloc(&held, 40 * MIB));
    OK(cuMemFree(held));
    OK(cachealloc_reset_peak_stats(0));
    hold_mib(10, 12);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, hold_in_turn, context));
    OK(sem_wait(&turns[0]));
    hold_mib(8, 1);
    expect_peak(10);
    other_turn(0);
    // This cache serves no more than it did without the other thread's block.
    hold_mib(6, 1);
    expect_peak(11);
    other_turn(0);
    hold_mib(2, 100);
    other_turn(0);
    // The same amount after many hits, but repeatedly.
    hold_mib(8, 17);
    expect_peak(13);
    other_turn(0);
    other_turn(0);
    // Only once, but more than this cache ever served.
    hold_mib(10, 1);
    expect_peak(15);
    other_turn(0);
    other_turn(0);
    // As much as before, beside a block that the core has served since.
    hold_mib(10, 1);
    expect_peak(17);
    OK(pthread_join(thread, NULL));
    return 0;
}

static void *allocate_until_stopped(void *number) {
    void *context;
    unsigned long random = (long)number + 1;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    Pointer live[20] = {0};
    while (!stop) {
        random = random * 6364136223846793005 + 1442695040888963407;
        int i = (random >> 33) % 20;
        // Often about the same size, sometimes any.
        size_t bytes = random >> 60 < 12 ? 60000 + (random >> 40) % 100 : 1 + (random >> 40) % (3 * MIB);
        if (live[i])
            OK(cuMemFree(live[i]));
        OK(cuMemAlloc(&live[i], bytes));
        for (int again = 0; again < 30; again++) {
            OK(cuMemFree(live[i]));
            OK(cuMemAlloc(&live[i], 60000 + again));
        }
    }
    for (int i = 0; i < 20; i++)
        if (live[i])
            OK(cuMemFree(live[i]));
    return NULL;
}

// Allocates in this many threads until its input ends.
static int busy(int count, const char *end) {
    start_cuda();
    loop(1);
    pthread_t threads[8];
    for (long i = 0; i < count; i++)
        OK(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    if (!strcmp(end, "fork") && !fork())
        exit(3);
    if (!strcmp(end, "kill"))
        kill(getpid(), 9);
    stop = 1;
    for (int i = 0; i < count; i++)
        OK(pthread_join(threads[i], NULL));
    expect("allocated_bytes.all", 0, stat("allocated_bytes.all.allocated"), stat("allocated_bytes.all.allocated"));
    expect("requested_bytes.all", 0, stat("requested_bytes.all.allocated"), stat("requested_bytes.all.allocated"));
    if (!strcmp(end, "_exit"))
        _exit(0);
    return 0;
}

// All allocations of this program go through this function, which is therefore no call site.
static Pointer __attribute__((noinline)) get(size_t bytes) {
    Pointer block;
    OK(cuMemAlloc(&block, bytes));
    return block;
}

static volatile Pointer more;

static void __attribute__((noinline)) takes_more(void) {
    more = get(100 * MIB);
}

// Only hits for longer than a second, then a request that reaches the driver, then hits until the
// input ends.
static int steady(void) {
    start_cuda();
    Pointer block;
    for (int i = 0; i < 1200; i++) {
        block = get(3 * MIB);
        OK(cuMemFree(block));
        usleep(1000);
    }
    takes_more();
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    find_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemAllocAsync = dlsym(driver, "cuMemAllocAsync");
    *(void **)&cuMemFreeAsync = dlsym(driver, "cuMemFreeAsync");
    *(void **)&cuStreamSynchronize = dlsym(driver, "cuStreamSynchronize");
    if (!strcmp(argv[1], "steady"))
        return steady();
    if (!strcmp(argv[1], "zones"))
        return zones();
    if (!strcmp(argv[1], "lists"))
        return lists();
    if (!strcmp(argv[1], "api"))
        return api();
    if (!strcmp(argv[1], "contexts"))
        return contexts();
    if (!strcmp(argv[1], "holders"))
        return holders(0);
    if (!strcmp(argv[1], "holders_anew"))
        return holders(1);
    if (!strcmp(argv[1], "lists-peak"))
        return peak_of_lists();
    if (!strcmp(argv[1], "peak"))
        return peak();
    CHECK(!strcmp(argv[1], "busy") && argc == 4);
    return busy(atoi(argv[2]), argv[3]);
}
