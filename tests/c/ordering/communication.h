// What the program and the library of `communication.c` share: the driver's functions, and the
// library's.
#ifndef COMMUNICATION_H
#define COMMUNICATION_H
#include "../check.h"

typedef unsigned long long Word;

// Virtual nanoseconds: longer than any call.
#define LATE 15000000

struct Properties {
    int kind, handle_types;
    struct { int kind, id; } location;
    void *metadata;
    unsigned char flags[8];
};

struct Access {
    struct { int kind, id; } location;
    int flags;
};

static int (*cuMemCreate)(void **, size_t, struct Properties *, Word);
static int (*cuMemAddressReserve)(Pointer *, size_t, size_t, Pointer, Word);
static int (*cuMemMap)(Pointer, size_t, size_t, void *, Word);
static int (*cuMemSetAccess)(Pointer, size_t, struct Access *, size_t);
static int (*cuMemExportToShareableHandle)(void *, void *, int, Word);
static int (*cuMemImportFromShareableHandle)(void **, void *, int);
static int (*cuMemRetainAllocationHandle)(void **, Pointer);
static int (*cuMemRelease)(void *);
static int (*cuMemHostAlloc)(void **, size_t, unsigned);
static int (*cuMemHostGetDevicePointer)(Pointer *, void *, unsigned);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);
static int (*cuMulticastCreate)(void **, const Word *);
static int (*cuMulticastAddDevice)(void *, int);
static int (*cuMulticastBindMem)(void *, size_t, void *, size_t, size_t, Word);
static void (*sim_host_read)(Word, size_t);

static void find_functions(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name, symbol) CHECK((*(void **)&name = dlsym(driver, symbol)) != 0)
    FIND(cuMemCreate, "cuMemCreate");
    FIND(cuMemAddressReserve, "cuMemAddressReserve");
    FIND(cuMemMap, "cuMemMap");
    FIND(cuMemSetAccess, "cuMemSetAccess");
    FIND(cuMemExportToShareableHandle, "cuMemExportToShareableHandle");
    FIND(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle");
    FIND(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle");
    FIND(cuMemRelease, "cuMemRelease");
    FIND(cuMemHostAlloc, "cuMemHostAlloc");
    FIND(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
    FIND(cuModuleLoadData, "cuModuleLoadData");
    FIND(cuModuleGetFunction, "cuModuleGetFunction");
    FIND(cuStreamCreate, "cuStreamCreate");
    FIND(cuLaunchKernel, "cuLaunchKernel");
    FIND(cuMulticastCreate, "cuMulticastCreate");
    FIND(cuMulticastAddDevice, "cuMulticastAddDevice");
    FIND(cuMulticastBindMem, "cuMulticastBindMem");
    FIND(sim_host_read, "sim_host_read");
    (void)cuStreamCreate, (void)sim_host_read;
}
#endif
