// A `libcuda.so.1` whose functions do nothing, so that the cost of a call is the
// library's.
#include <stdint.h>

// What a launch returns.
#ifndef LAUNCHED
#define LAUNCHED 0
#endif

static uint64_t next = 0x7f0000000000;
static uintptr_t last_event = 0x2000;

int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 89; return device; }
int cuDeviceTotalMem_v2(uint64_t *bytes, int device) { *bytes = 1ull << 37; return device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &next; return device; }
int cuCtxSetCurrent(void *context) { return context != &next; }
int cuCtxGetId(void *context, uint64_t *id) { *id = 1; return context != 0 && context != &next; }
int cuCtxGetCurrent(void **context) { *context = &next; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxRecordEvent(void *context, void *event) { return !context || !event; }
int cuCtxWaitEvent(void *context, void *event) { return !context || !event; }
int cuEventCreate(void **event, unsigned flags) { *event = (void *)(last_event += 64); return flags != 2; }
int cuEventSynchronize(void *event) { return !event; }
int cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
int cuMemAlloc_v2(uint64_t *pointer, uint64_t bytes) {
    *pointer = next;
    next += (bytes + (2 << 20) - 1) >> 21 << 21;
    return 0;
}
int cuMemFree_v2(uint64_t pointer) { return pointer >= next; }
int cuMemAllocAsync(uint64_t *pointer, uint64_t bytes, void *stream) { return stream ? 1 : cuMemAlloc_v2(pointer, bytes); }
int cuMemFreeAsync(uint64_t pointer, void *stream) { return stream || pointer >= next; }
int cuDeviceGetDefaultMemPool(void **pool, int device) { *pool = &last_event; return device; }
int cuDeviceGetMemPool(void **pool, int device) { *pool = &last_event; return device; }
int cuStreamGetId(void *stream, uint64_t *id) { *id = 1; return stream != 0; }
int cuStreamGetCtx(void *stream, void **context) { *context = &next; return stream != 0; }
int cuStreamIsCapturing(void *stream, int *state) { *state = 0; return stream != 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)params, (void)extra;
    return LAUNCHED;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, uint64_t bytes, void *stream) {
    return stream || !bytes || to == from;
}
int cuMemsetD32Async(uint64_t to, unsigned value, uint64_t count, void *stream) {
    return stream || !to || !value || !count;
}
int cuGraphLaunch(void *executable, void *stream) { return stream || !executable; }
int cuEventRecord(void *event, void *stream) { return stream || !event; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return stream || !event || flags; }
int cuEventQuery(void *event) { return !event; }
int cuMemHostRegister_v2(void *start, uint64_t bytes, unsigned flags) { return !start || !bytes || flags; }
int cuMemHostUnregister(void *start) { return !start; }
int cuModuleUnload(void *module) { return !module; }
// A kernel's handle encodes the number of its arguments, and the bytes of each.
int cuFuncGetParamInfo(uintptr_t kernel, uint64_t index, uint64_t *offset, uint64_t *bytes) {
    *bytes = kernel >> 16 & 0xffff, *offset = index * *bytes;
    return index >= kernel >> 32;
}
