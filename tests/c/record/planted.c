// Cases that a picture of GPU memory should show, each in a separate function: weights that stay, a
// leak, a burst of temporaries, and at the end a request that is refused.
// usage: planted LEAKS [refused]
#include "../check.h"

#define APART __attribute__((noinline))

static Pointer weights[4];

static APART Pointer get(size_t bytes) {
    Pointer block;
    OK(cuMemAlloc(&block, bytes)); // asks
    return block;
}

static APART void load_weights(void) {
    for (int i = 0; i < 4; i++)
        weights[i] = get(8 << 20); // weights
}

static APART void leak(void) {
    get(3 << 20); // leak
}

static APART void burst(void) {
    for (int i = 0; i < 100; i++) {
        Pointer block = get(64 << 10); // temporary
        OK(cuMemFree(block));
    }
}

static APART void refused(void) {
    Pointer block;
    CHECK(cuMemAlloc(&block, (size_t)1 << 50) == 2); // refused
}

int main(int argc, char **argv) {
    start_cuda();
    load_weights();
    for (int i = 0; i < atoi(argv[1]); i++)
        leak();
    burst();
    if (argc > 2)
        refused();
    for (int i = 0; i < 4; i++)
        OK(cuMemFree(weights[i]));
    return 0;
}
