// Another preloaded library, of one of these kinds:
//   TRACER     has functions of the driver's names, counts, and passes calls to the next definition
//   LOADER     the same, but finds the driver by itself at its first call
//   SHARE      interposes `dlsym`, and returns its own functions for some names
//   OVERLAY    interposes `dlsym`, and returns its own function for a name unrelated to the driver
//   VERSIONED  interposes `dlvsym`, and returns its own function for a name unrelated to the driver
//   PATCHER    overwrites the beginning of a driver function once the driver is loaded
//   VARIABLES  keeps functions of the driver in variables with the same names
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long Pointer;
static atomic_int calls;

#if defined TRACER || defined LOADER
static void *next(const char *name) {
#ifdef TRACER
    return dlsym(RTLD_NEXT, name);
#else
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name);
#endif
}
int cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    static int (*_Atomic real)(Pointer *, size_t);
    if (!real)
        real = (int (*)(Pointer *, size_t))next("cuMemAlloc_v2");
    calls++;
    return real ? real(pointer, bytes) : 999;
}
int cuInit(unsigned flags) {
    int (*real)(unsigned) = (int (*)(unsigned))next("cuInit");
    calls++;
    return real ? real(flags) : 999;
}
#endif

#if defined SHARE || defined OVERLAY
static void *libc_dlsym(void *handle, const char *name) {
    static void *(*_Atomic real)(void *, const char *);
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
    return real(handle, name);
}
#endif

#ifdef SHARE
static void *driver(const char *name) {
    return libc_dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name);
}
int cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    static int (*_Atomic real)(Pointer *, size_t);
    if (!real)
        real = (int (*)(Pointer *, size_t))driver("cuMemAlloc_v2");
    calls++;
    return bytes > 100 << 20 ? 2 : real(pointer, bytes);
}
int cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long long flags, int *status) {
    int (*real)(const char *, void **, int, unsigned long long, int *) = driver("cuGetProcAddress_v2");
    int code = real(name, address, version, flags, status);
    if (!code && !strcmp(name, "cuMemAlloc") && version >= 3020)
        *address = (void *)cuMemAlloc_v2;
    if (!code && !strcmp(name, "cuGetProcAddress") && version >= 12000)
        *address = (void *)cuGetProcAddress_v2;
    return code;
}
void *dlsym(void *handle, const char *name) {
    void *found = libc_dlsym(handle, name);
    if (found && !strcmp(name, "cuMemAlloc_v2"))
        return (void *)cuMemAlloc_v2;
    if (found && !strcmp(name, "cuGetProcAddress_v2"))
        return (void *)cuGetProcAddress_v2;
    return found;
}
#endif

#ifdef OVERLAY
static int counted(int number) {
    calls++;
    return -number;
}
void *dlsym(void *handle, const char *name) {
    return !strcmp(name, "abs") ? (void *)counted : libc_dlsym(handle, name);
}
#endif

#ifdef VERSIONED
static int counted(int number) {
    calls++;
    return -number;
}
void *dlvsym(void *handle, const char *name, const char *version) {
    static void *(*_Atomic real)(void *, const char *, const char *);
    if (!real)
        real = (void *(*)(void *, const char *, const char *))dlsym(RTLD_NEXT, "dlvsym");
    return !strcmp(name, "abs") ? (void *)counted : real(handle, name, version);
}
#endif

#ifdef PATCHER
#ifdef __x86_64__
static unsigned char jump[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3}; // mov r11, to; jmp r11
#define TARGET (jump + 2)
#else
static unsigned char jump[] = {0x4f, 0, 0, 0x58, 0xe0, 1, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; // ldr x15, 8; br x15
#define TARGET (jump + 8)
#endif
static unsigned char *patched, original[sizeof jump];

static void write_code(const unsigned char *code) {
    memcpy(patched, code, sizeof jump);
    __builtin___clear_cache((char *)patched, (char *)patched + sizeof jump);
}
// Puts the original instructions back for each call, since nothing here can move them elsewhere.
static int counted(Pointer *pointer, size_t bytes) {
    calls++;
    write_code(original);
    int code = ((int (*)(Pointer *, size_t))patched)(pointer, bytes);
    write_code(jump);
    return code;
}
void driver_is_loaded(void) {
    patched = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuMemAlloc_v2");
    size_t page = sysconf(_SC_PAGESIZE), begin = (size_t)patched & -page;
    mprotect((void *)begin, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
    void *target = (void *)counted;
    memcpy(TARGET, &target, sizeof target);
    memcpy(original, patched, sizeof original);
    write_code(jump);
}
#endif

#ifdef VARIABLES
int (*cuInit)(unsigned);
int (*cuDeviceGetCount)(int *);
int (*cuMemAlloc_v2)(Pointer *, size_t);
__attribute__((constructor)) static void find(void) {
    void *driver = cuInit ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return;
    cuInit = (int (*)(unsigned))dlsym(driver, "cuInit");
    cuDeviceGetCount = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    cuMemAlloc_v2 = (int (*)(Pointer *, size_t))dlsym(driver, "cuMemAlloc_v2");
    int devices = 0;
    if (!cuInit(0) && !cuDeviceGetCount(&devices))
        calls += devices;
}
#endif

__attribute__((destructor)) static void report(void) {
    char text[80];
#ifdef OVERLAY
    ((int (*)(int))dlsym(RTLD_DEFAULT, "abs"))(1);
#elif defined VERSIONED
    ((int (*)(int))dlvsym(RTLD_DEFAULT, "abs", "GLIBC_2.2.5"))(1);
#endif
    int length = snprintf(text, sizeof text, "neighbour: %d calls\n", calls);
    (void)!write(2, text, length);
}
