// killed WAY: allocates, and kills itself.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <signal.h>
#include <sys/wait.h>

static Pointer kept[64];

__attribute__((noinline)) static void hold(int count) {
    for (int i = 0; i < count; i++)
        OK(cuMemAlloc(&kept[i], 1000000 * (i + 1)));
}

// The child inherits the library's mapping, and ends normally.
static void with_child(void) {
    pid_t child = fork();
    if (!child) {
        Pointer pointer;
        cuMemAlloc(&pointer, 12345678);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
}

// Continues recording with at most this many entries.
static void change(int entries_max, int clear) {
    const char *level = strstr(getenv("CACHEALLOC_CONF"), "record:state") ? "state" : "all";
    CHECK(cachealloc_record_memory_history);
    CHECK(!cachealloc_record_memory_history(level, "all", "all", entries_max, -1, clear));
}

// Between two stops, everything that can be recorded happens once: allocations and frees of the
// library, of the driver itself, and of host memory.
static void stepped(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *pinned;
    int (*managed)(Pointer *, size_t, unsigned) = dlsym(driver, "cuMemAllocManaged");
    int (*alloc_host)(void **, size_t) = dlsym(driver, "cuMemAllocHost_v2"), (*free_host)(void *) = dlsym(driver, "cuMemFreeHost");
    Pointer pointer, other;
    raise(SIGSTOP);
    OK(cuMemAlloc(&pointer, 1000));
    OK(cuMemAlloc(&other, 30000000));
    OK(cuMemFree(pointer));
    OK(cuMemFree(other));
    for (int i = 0; i < 2; i++) {
        OK(alloc_host(&pinned, 4096));
        OK(free_host(pinned));
    }
    OK(cuMemAlloc(&pointer, 900));
    OK(managed(&other, 5000, 1));
    change(9, 0);
    OK(cuMemFree(pointer));
    OK(cuMemFree(other));
    change(7, 1);
    CHECK(cuMemAlloc(&pointer, (size_t)1 << 50) == 2);
    raise(SIGSTOP);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    start_cuda();
    if (!strcmp(argv[1], "late")) {
        Pointer before;
        OK(cuMemAlloc(&before, 7000000));
        usleep(1200000);
        CHECK(cachealloc_record && !cachealloc_record("all"));
        hold(5);
        usleep(2500000);
        raise(SIGKILL);
    }
    hold(5);
    OK(cuMemFree(kept[1]));
    if (!strcmp(argv[1], "stepped"))
        stepped();
    if (!strcmp(argv[1], "forking")) {
        with_child();
        OK(cuMemFree(kept[2]));
    }
    if (!strcmp(argv[1], "becomes"))
        execl("/bin/sleep", "sleep", "60", NULL);
    if (!strcmp(argv[1], "waits")) {
        puts("ready");
        fflush(stdout);
        getchar();
        return 0;
    }
    raise(SIGKILL);
}
