// A library takes references to the primary context and releases them, while the program launches
// kernels: prints by how much the process grows meanwhile.
#include "../check.h"

#define ROUNDS 8000

static long resident_kib(void) {
    long all, pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld %ld", &all, &pages) == 2);
    fclose(statm);
    return pages * 4;
}

int main(int count, char **words) {
    int (*alloc_host)(void **, size_t, unsigned), (*load)(void **, const void *), (*find)(void **, void *, const char *);
    int (*release)(int);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    void *pinned, *module, *kernel, *context;
    unsigned long long time_ns = 0;
    void *arguments[] = {&time_ns};
    start_cuda();
    CHECK(count == 2);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&alloc_host = dlsym(driver, "cuMemHostAlloc");
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&find = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    *(void **)&release = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
    // The arguments of kernels matter only beside pinned memory.
    OK(alloc_host(&pinned, 4096, 0));
    OK(load(&module, words[1]));
    OK(find(&kernel, module, "delay"));
    long begun = 0;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        if (round == ROUNDS)
            begun = resident_kib();
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(release(0));
        OK(launch(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
        if (round % 64 == 0)
            OK(cuCtxSynchronize());
    }
    printf("%ld KiB\n", resident_kib() - begun);
    return 0;
}
