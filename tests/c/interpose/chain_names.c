// A program that names functions of the driver in other ways than by calling them:
//   WEAK   a weak reference, by which it tests for CUDA
//   USES   variables with those names, which a library defines (`chain_neighbour.c`)
#include <stdio.h>

#ifdef WEAK
extern int cuInit(unsigned) __attribute__((weak));
extern int cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));
int main(void) {
    if (cuInit && cuMemAlloc_v2)
        printf("on the GPU: %d\n", cuInit(0));
    else
        puts("on the CPU");
    return 0;
}
#endif

#ifdef USES
extern int (*cuInit)(unsigned);
extern int (*cuDeviceGetCount)(int *);
extern int (*cuMemAlloc_v2)(unsigned long long *, size_t);
int main(void) {
    int devices = 0;
    if (!cuInit || !cuDeviceGetCount || !cuMemAlloc_v2) {
        puts("not found");
        return 1;
    }
    int code = cuInit(0) + cuDeviceGetCount(&devices);
    printf("code %d, %d devices\n", code, devices);
    return 0;
}
#endif
