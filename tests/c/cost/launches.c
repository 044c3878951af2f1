// launches KIND COUNT: launches kernels beside pinned memory. All their arguments are device
// addresses that lie between pinned ones. `eight`: eight arguments; `table`: one of 4 KiB; `low`:
// the same, with pinned memory at a low address; `struct`: one of 64 bytes. Launches COUNT times in
// `counted`, after one launch as warm-up, to count the instructions. `first`: COUNT kernels, each
// for the first time, and again after a module was unloaded; prints how often links were read
// meanwhile.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int links_read;

// Interposes the C library's function, also for the library under test.
ssize_t readlink(const char *path, char *target, size_t bytes) {
    links_read++;
    return syscall(SYS_readlinkat, -100, path, target, bytes);
}

static int (*launch)(uintptr_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static int run(uintptr_t kernel, void **arguments) {
    return launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0);
}

__attribute__((noinline)) static int counted(uintptr_t kernel, void **arguments, long count) {
    int failed = 0;
    for (long i = 0; i < count; i++)
        failed |= run(kernel, arguments);
    return failed;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (argc != 3 || !driver)
        return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*pin)(uintptr_t, size_t, unsigned) = (int (*)(uintptr_t, size_t, unsigned))dlsym(driver, "cuMemHostRegister_v2");
    int (*unload)(void *) = (int (*)(void *))dlsym(driver, "cuModuleUnload");
    launch = (int (*)(uintptr_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **))dlsym(driver, "cuLaunchKernel");
    long count = atol(argv[2]);
    uintptr_t lowest = strcmp(argv[1], "low") ? 0x7f0000000000 : 0x204c00000;
    if (init(0) || retain(&context, 0) || set_current(context) || pin(lowest, 4096, 0) || pin(0x7fff00000000, 4096, 0))
        return 2;
    if (!strcmp(argv[1], "first")) {
        uint64_t number = 7;
        void *arguments[] = {&number};
        for (int round = 0; round < 2; round++) {
            for (long i = 0; i < count; i++)
                if (run(1ull << 32 | 8 << 16 | i << 4, arguments))
                    return 1;
            if (unload(&context))
                return 1;
        }
        printf("%d\n", links_read);
        return 0;
    }
    int few = !strcmp(argv[1], "eight"), bytes = few ? 8 : strcmp(argv[1], "struct") ? 4096 : 64;
    static uint64_t table[512];
    void *arguments[8];
    for (int i = 0; i < 512; i++)
        table[i] = 0x7f5000000000 + i * 0x201000;
    for (int i = 0; i < 8; i++)
        arguments[i] = &table[i];
    uintptr_t kernel = (few ? 8ull : 1ull) << 32 | bytes << 16;
    // The first launch of a kernel looks up its arguments.
    int failed = run(kernel, arguments);
    return failed | counted(kernel, arguments, count);
}
