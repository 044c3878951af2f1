// Prints the host memory that remains for each context that was created, used and ended. usage:
// ended_contexts MAX
#include "../check.h"
static int (*cuCtxCreate)(void **, unsigned, int);
static int (*cuCtxDestroy)(void *);

static long resident_bytes(void) {
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &all, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void sessions(int count) {
    for (int i = 0; i < count; i++) {
        void *context;
        Pointer small, large;
        OK(cuCtxCreate(&context, 0, 0));
        OK(cuMemAlloc(&small, 100000));
        OK(cuMemAlloc(&large, 3 << 20));
        OK(cuMemFree(large));
        OK(cuMemFree(small));
        OK(cuCtxDestroy(context));
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuCtxCreate = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&cuCtxDestroy = dlsym(driver, "cuCtxDestroy_v2");
    sessions(200);
    long before = resident_bytes();
    sessions(800);
    long each = (resident_bytes() - before) / 800;
    printf("%ld bytes each\n", each);
    return each > atol(arguments[1]);
}
