// Many sizes in turn, of which the cache keeps blocks, then as many blocks as there is memory for,
// after the given number of MiB and with the sizes in turn after each. Prints their number.
#include "../check.h"

static void sizes_in_turn(int rounds) {
    for (int round = 0; round < rounds; round++)
        for (int size = 1; size <= 64; size++) {
            Pointer block;
            if (!cuMemAlloc(&block, size * 4096))
                OK(cuMemFree(block));
        }
}

int main(int argc, char **argv) {
    Pointer taken, blocks[256];
    size_t taken_bytes = argc < 2 ? 0 : atol(argv[1]) << 20;
    int count = 0;
    void *context;
    find_driver();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    if (taken_bytes)
        OK(cuMemAlloc(&taken, taken_bytes));
    else
        sizes_in_turn(200);
    while (count < 256 && !cuMemAlloc(&blocks[count], 512 << 10)) {
        count++;
        sizes_in_turn(!!taken_bytes);
    }
    printf("%d\n", count);
    return 0;
}
