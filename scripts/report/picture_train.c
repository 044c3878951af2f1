// A made-up training loop for pictures of `cachealloc top`, by the driver's functions alone: parameters, an optimizer,
// activations that come and go, and a list of losses that nobody frees. Runs until it is killed.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LAYERS 12
#define MIB (1ul << 20)

typedef unsigned long long address;

static int (*allocate)(address *, size_t);
static int (*release)(address);

static address tensor_new(size_t bytes) {
    address new = 0;
    if (allocate(&new, bytes)) {
        exit(1);
    }
    return new;
}

static void load_model(void) {
    for (int layer = 0; layer < LAYERS; layer++) {
        tensor_new(12 * MIB);
    }
}

static void make_optimizer(void) {
    for (int layer = 0; layer < LAYERS; layer++) {
        tensor_new(8 * MIB);
    }
}

static address attention(int step) {
    address scores = tensor_new(9 * MIB), mask = tensor_new((3 + step % 3) * MIB);
    release(mask);
    return scores;
}

static address mlp(int step) {
    return tensor_new((11 + step % 4) * MIB);
}

static void log_metrics(void) {
    tensor_new(MIB);
}

static void train_step(int step) {
    address kept[LAYERS];
    for (int layer = 0; layer < LAYERS; layer += 2) {
        kept[layer] = attention(step);
        kept[layer + 1] = mlp(step);
    }
    if (step % 4 == 0 && step < 800) {
        log_metrics();
    }
    for (int layer = LAYERS; layer-- > 0; usleep(3000)) {
        release(kept[layer]);
    }
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned) = dlsym(driver, "cuInit"), (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = dlsym(driver, "cuCtxSetCurrent");
    allocate = dlsym(driver, "cuMemAlloc_v2");
    release = dlsym(driver, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || use(context)) {
        return 1;
    }
    load_model();
    make_optimizer();
    for (int step = 0;; step++) {
        train_step(step);
    }
}
