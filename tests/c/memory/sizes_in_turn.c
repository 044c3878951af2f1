// Many sizes in turn, of which the cache keeps blocks, then as many blocks as there is memory for.
// Prints their number.
#include "../check.h"

int main(void) {
    Pointer blocks[256];
    int count = 0;
    void *context;
    find_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int round = 0; round < 200; round++)
        for (int size = 1; size <= 64; size++) {
            OK(cuMemAlloc(&blocks[0], size * 4096));
            OK(cuMemFree(blocks[0]));
        }
    while (count < 256 && !cuMemAlloc(&blocks[count], 512 << 10))
        count++;
    printf("%d\n", count);
    return 0;
}
