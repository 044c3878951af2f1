// All memory of the process is locked; contexts end with a block that nothing freed.
#include "../check.h"
#include <sys/mman.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

int main(void) {
    int (*create)(void **, unsigned, int);
    int (*destroy)(void *);
    find_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(driver, "cuCtxDestroy_v2");
    printf("locked: %d\n", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0);
    OK(cuInit(0));
    for (int i = 0; i < 3; i++) {
        void *context;
        Pointer freed, left;
        OK(create(&context, 0, 0));
        OK(cuMemAlloc(&left, 1 << 20));
        OK(cuMemAlloc(&freed, 1 << 20));
        printf("inside: %d\n", cuMemFree(left + 512));
        OK(cuMemFree(freed));
        OK(destroy(context));
    }
    return 0;
}
