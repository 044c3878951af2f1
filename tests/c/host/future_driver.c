// A future `libcuda.so.1` with a function that is unknown to the library. With -DOLD: an old one,
// without functions that the library uses if they exist.
#include <stdint.h>
#include <string.h>

int cuInit(unsigned flags) { return flags ? 1 : 0; }

#ifdef OLD
int cuDriverGetVersion(int *version) { *version = 3020; return 0; }
static unsigned long long next = 0x10000000;
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &next; return device; }
int cuCtxSetCurrent(void *context) { return context != &next; }
int cuCtxGetCurrent(void **context) { *context = &next; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(unsigned long long *pointer, uint64_t bytes) {
    *pointer = next;
    next += (bytes + 511) / 512 * 512;
    return 0;
}
int cuMemFree_v2(unsigned long long pointer) { return pointer >= next; }
#else
int cuDriverGetVersion(int *version) { *version = 99000; return 0; }

int cuFutureCall(long a, int b, short c, signed char d, void *e, unsigned f, long g, int h, char *i,
                 double p, double q, double r, double s, double t, double u, double v, double w) {
    int words = a == -1 && b == -2 && c == -3 && d == -4 && e == (void *)5 && f == 6 && g == 7 &&
                h == -8 && !strcmp(i, "nine");
    int numbers = p == 1.5 && q == 2.5 && r == 3.5 && s == 4.5 && t == 5.5 && u == 6.5 && v == 7.5 && w == 8.5;
    return words && numbers ? 77 : 1;
}

int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
    *address = !strcmp(name, "cuFutureCall") ? (void *)cuFutureCall
               : !strcmp(name, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : 0;
    if (status)
        *status = !*address;
    return version < 0 || flags > 2 ? 1 : 0;
}
#endif
