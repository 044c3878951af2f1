// A `libcuda.so.1` that returns at once, with streams, arenas and events that stay pending, so that
// the cost of a call is the library's. Prints how often it was called.
#include <stdint.h>
#include <stdlib.h>

int pending = 0;
long queries = 0, records = 0;

static uint64_t next = 0x200000000000, handles, streams = 16;
static uintptr_t last_event = 0x2000;

// A context's handle is the address of its id. The first one is the primary context.
static uint64_t contexts[4096] = {1}, contexts_count = 1;
static __thread void *current[16];
static __thread int pushed;

int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 89 || attribute == 102;
    return device;
}
int cuDeviceTotalMem_v2(uint64_t *bytes, int device) { *bytes = 1ull << 37; return device; }
int cuMemGetInfo_v2(uint64_t *left, uint64_t *total) { *left = 1ull << 37, *total = 1ull << 37; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = contexts; return device; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = current[pushed] = &contexts[contexts_count++];
    contexts[contexts_count - 1] = contexts_count;
    return flags || device;
}
int cuCtxSetCurrent(void *context) { current[pushed] = context; return 0; }
int cuCtxPushCurrent_v2(void *context) { current[++pushed] = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = current[pushed--]; return 0; }
int cuCtxGetId(void *context, uint64_t *id) {
    uint64_t *asked = context ? context : current[pushed];
    if (!asked)
        return 201;
    *id = *asked;
    return 0;
}
int cuCtxGetCurrent(void **context) { *context = current[pushed]; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxRecordEvent(void *context, void *event) { return !context || !event; }
int cuCtxWaitEvent(void *context, void *event) { return !context || !event; }
int cuEventCreate(void **event, unsigned flags) { *event = (void *)(last_event += 64); return flags != 2; }
int cuEventRecord(void *event, void *stream) { records++; return !stream || !event; }
int cuEventQuery(void *event) { queries++; return !event ? 1 : pending ? 600 : 0; }
int cuEventSynchronize(void *event) { return !event; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)(streams++ << 4); return flags != 1; }
int cuStreamGetId(void *stream, uint64_t *id) { *id = (uintptr_t)stream; return 0; }
int cuStreamGetCtx(void *stream, void **context) { *context = contexts; return !stream; }
int cuStreamGetFlags(void *stream, unsigned *flags) { *flags = 1; return !stream; }
int cuStreamIsCapturing(void *stream, int *state) { *state = 0; return !stream; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return !stream || !event || flags; }
int cuStreamSynchronize(void *stream) { return !stream; }
int cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
int cuMemAlloc_v2(uint64_t *pointer, uint64_t bytes) {
    *pointer = next;
    next += (bytes + (2 << 20) - 1) >> 21 << 21;
    return 0;
}
int cuMemFree_v2(uint64_t pointer) { return pointer >= next; }
int cuMemAllocAsync(uint64_t *pointer, uint64_t bytes, void *stream) {
    return stream ? cuMemAlloc_v2(pointer, bytes) : 1;
}
int cuMemFreeAsync(uint64_t pointer, void *stream) { return !stream || pointer >= next; }
int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = &last_event; return device; }
int cuDeviceGetMemPool(void **pool, int device) { *pool = &last_event; return device; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)params, (void)extra;
    return !stream;
}
int cuMemAddressReserve(uint64_t *pointer, uint64_t bytes, uint64_t alignment, uint64_t address, uint64_t flags) {
    (void)alignment, (void)address;
    return flags ? 1 : cuMemAlloc_v2(pointer, bytes);
}
int cuMemAddressFree(uint64_t pointer, uint64_t bytes) { return !pointer || !bytes; }
int cuMemCreate(uint64_t *handle, uint64_t bytes, void *properties, uint64_t flags) {
    *handle = ++handles;
    return !bytes || !properties || flags;
}
int cuMemRelease(uint64_t handle) { return !handle; }
int cuMemMap(uint64_t pointer, uint64_t bytes, uint64_t offset, uint64_t handle, uint64_t flags) {
    return !pointer || !bytes || offset || !handle || flags;
}
int cuMemUnmap(uint64_t pointer, uint64_t bytes) { return !pointer || !bytes; }
int cuMemSetAccess(uint64_t pointer, uint64_t bytes, void *access, uint64_t count) {
    return !pointer || !bytes || !access || !count;
}
int cuMemGetAllocationGranularity(uint64_t *bytes, void *properties, int option) {
    *bytes = 2 << 20;
    return !properties || option < 0;
}
