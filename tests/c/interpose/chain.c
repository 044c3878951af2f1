// Allocates and frees through the driver, whose functions are found in one of several ways: as the
// argument says, or with -DLINKED as the program is linked. Mixed: memory is allocated through one
// way and freed through another.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Pointer;
typedef int Resolve(const char *, void **, int, uint64_t, int *);

#ifdef LINKED
// Called, not stored: a call is bound when it is first made.
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(Pointer *, size_t), cuMemFree_v2(Pointer);
static int init(unsigned flags) { return cuInit(flags); }
static int retain(void **context, int device) { return cuDevicePrimaryCtxRetain(context, device); }
static int set_current(void *context) { return cuCtxSetCurrent(context); }
static int allocate(Pointer *pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes); }
static int release(Pointer pointer) { return cuMemFree_v2(pointer); }
static void find(const char *way) { (void)way; }
#else
static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *);
static int (*allocate)(Pointer *, size_t), (*release)(Pointer);

static void *found(void *driver, const char *way, const char *symbol, const char *base, int version) {
    void *function = dlsym(driver, symbol);
    int is_free = !strcmp(base, "cuMemFree");
    if (!strcmp(way, "asked") || (!strcmp(way, "mixed") && is_free)) {
        int status;
        Resolve *resolve = (Resolve *)dlsym(driver, "cuGetProcAddress_v2");
        if (!resolve || resolve(base, &function, version, 0, &status))
            exit(3);
    }
    return function;
}

static void find(const char *way) {
    int scope = !strcmp(way, "global") ? RTLD_GLOBAL : RTLD_LOCAL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | scope);
    if (!driver)
        exit(2);
    if (!strcmp(way, "global"))
        driver = RTLD_DEFAULT;
    *(void **)&init = found(driver, way, "cuInit", "cuInit", 2000);
    *(void **)&retain = found(driver, way, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000);
    *(void **)&set_current = found(driver, way, "cuCtxSetCurrent", "cuCtxSetCurrent", 4000);
    *(void **)&allocate = found(driver, way, "cuMemAlloc_v2", "cuMemAlloc", 3020);
    *(void **)&release = found(driver, way, "cuMemFree_v2", "cuMemFree", 3020);
}
#endif

int main(int count, char **arguments) {
    void *context;
    int codes = 0;
    find(count > 1 ? arguments[1] : "");
    void (*driver_is_loaded)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "driver_is_loaded");
    if (driver_is_loaded)
        driver_is_loaded();
    codes += init(0);
    codes += retain(&context, 0);
    codes += set_current(context);
    for (int i = 0; i < 20; i++) {
        Pointer pointer = 0;
        codes += allocate(&pointer, 3 << 20);
        codes += release(pointer);
    }
    printf("20 pairs, codes %d\n", codes);
    return codes != 0;
}
