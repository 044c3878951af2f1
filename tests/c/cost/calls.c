// calls KIND COUNT: makes the same calls COUNT times in `counted`, after a warm-up, to count the
// instructions of that function and of everything that it calls.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *driver;
static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found)
        exit(2);
    return found;
}

static int (*alloc_async)(uint64_t *, uint64_t, void *), (*free_async)(uint64_t, void *);
static int alloc_in_order(uint64_t *pointer, uint64_t bytes) { return alloc_async(pointer, bytes, 0); }
static int free_in_order(uint64_t pointer) { return free_async(pointer, 0); }

static int rounds(const char *kind, long count, uint64_t kept);

// Read before and after the calls: a trace of all accesses shows where they begin and end.
#define MARK ((volatile char *)0x7000000000)

__attribute__((noinline)) static int counted(const char *kind, long count, uint64_t kept) {
    (void)*MARK;
    int failed = rounds(kind, count, kept);
    (void)*MARK;
    __asm__ volatile("" ::: "memory"); // the call is no jump: the function is left where it returns
    return failed;
}

// The same calls below some frames of the program.
__attribute__((noinline)) static int below(int frames, const char *kind, long count, uint64_t kept) {
    int failed = frames ? below(frames - 1, kind, count, kept) : rounds(kind, count / 2, kept) || counted(kind, count, kept);
    __asm__ volatile("" ::: "memory");
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 3 || !(driver = dlopen("libcuda.so.1", RTLD_NOW)))
        return 2;
    int (*init)(unsigned) = find("cuInit");
    int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = find("cuCtxSetCurrent");
    int (*alloc)(uint64_t *, uint64_t) = find("cuMemAlloc_v2");
    void *context;
    // As in a program whose own allocator cuts a large block.
    uint64_t kept;
    if (mmap((void *)MARK, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MARK)
        return 2;
    if (init(0) || retain(&context, 0) || set_current(context) || alloc(&kept, 64 << 20))
        return 2;
    // While pinned memory is alive, the library searches a kernel's arguments for its addresses.
    int (*pin)(void *, uint64_t, unsigned) = find("cuMemHostRegister_v2");
    if (strstr(argv[1], "pinned") && pin((void *)MARK, 4096, 0))
        return 2;
    long count = atol(argv[2]);
    return below(strcmp(argv[1], "below") ? 0 : 30, argv[1], count, kept);
}

__attribute__((noinline)) static int launches(int refused, long count) {
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **) = find("cuLaunchKernel");
    void *argument = 0, *arguments[] = {&argument}, *kernel = (void *)(1ull << 32 | 8 << 16); // one, of 8 bytes
    for (long i = 0; i < count; i++)
        if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0) != refused)
            return 1;
    return 0;
}

__attribute__((noinline)) static int rounds(const char *kind, long count, uint64_t kept) {
    int refused = !strncmp(kind, "refused", 7); // by a driver that refuses launches
    if (refused || strstr(kind, "pinned"))
        return launches(refused, count);
    int (*alloc)(uint64_t *, uint64_t) = find("cuMemAlloc_v2");
    int (*release)(uint64_t) = find("cuMemFree_v2");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **) = find("cuLaunchKernel");
    int pair = !strcmp(kind, "pair") || !strcmp(kind, "below"), both = !strcmp(kind, "pair-and-launch");
    int range = !strcmp(kind, "range");
    int (*push)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "cachealloc_range_push");
    void (*pop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "cachealloc_range_pop");
    int turns = !strcmp(kind, "turns"), mixed = turns || !strcmp(kind, "mixed");
    int copy = !strcmp(kind, "copy"), fill = !strcmp(kind, "fill"), graph = !strcmp(kind, "graph");
    int event = !strcmp(kind, "event");
    int (*copy_async)(uint64_t, uint64_t, uint64_t, void *) = find("cuMemcpyDtoDAsync_v2");
    int (*fill_async)(uint64_t, unsigned, uint64_t, void *) = find("cuMemsetD32Async");
    int (*graph_launch)(void *, void *) = find("cuGraphLaunch");
    int (*record)(void *, void *) = find("cuEventRecord"), (*stream_wait)(void *, void *, unsigned);
    stream_wait = (int (*)(void *, void *, unsigned))find("cuStreamWaitEvent");
    int (*query)(void *) = find("cuEventQuery");
    if (!strcmp(kind, "async")) {
        alloc_async = find("cuMemAllocAsync"), free_async = find("cuMemFreeAsync");
        alloc = alloc_in_order, release = free_in_order, both = 1;
    }
    for (long i = 0; i < count; i++) {
        uint64_t address[8];
        if (range) {
            if (push("step") || push("forward"))
                return 1;
            pop();
            if (push("backward"))
                return 1;
            pop();
            pop();
            continue;
        }
        if (copy || fill || graph || event) {
            if (copy && copy_async(kept, kept + (1 << 20), 4096, 0))
                return 1;
            if (fill && fill_async(kept, 7, 1024, 0))
                return 1;
            if (graph && graph_launch(&kept, 0))
                return 1;
            if (event && (record(&kept, 0) || stream_wait(0, &kept, 0) || query(&kept)))
                return 1;
            continue;
        }
        if (mixed) {
            for (int j = 0; turns && j < 64; j++)
                if (alloc(address, 4096 * (1 + j * 7 % 61)) || release(address[0]))
                    return 1;
            for (int j = 0; !turns && j < 8; j++)
                if (alloc(&address[j], 4096 * (1 + j * 7 % 13)))
                    return 1;
            for (int j = 0; !turns && j < 8; j++)
                if (release(address[j]))
                    return 1;
            continue;
        }
        if ((pair || both) && alloc(address, 65536))
            return 1;
        if (!pair && launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
            return 1;
        if ((pair || both) && release(address[0]))
            return 1;
    }
    return 0;
}
