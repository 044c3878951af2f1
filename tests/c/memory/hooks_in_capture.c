// hooks_in_capture WHAT MODE: a memory hook that works while a request in a capture asks the driver.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <pthread.h>

static int (*cuStreamBeginCapture)(void *, int);
static int (*cuStreamEndCapture)(void *, void **);
static void *stream, *graph;
static int heard;
static Pointer held;

static void use_context(void) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

static void *allocates(void *unused) {
    Pointer a;
    use_context();
    OK(cuMemAlloc(&a, 9 << 20));
    OK(cuMemFree(a));
    return unused;
}

// Allocates, frees, and waits for a thread that does so.
static void works(void) {
    pthread_t thread;
    Pointer a, b;
    heard++;
    OK(cuMemAlloc(&a, 1000));
    OK(cuMemAlloc(&b, 7 << 20));
    OK(pthread_create(&thread, NULL, allocates, NULL));
    OK(pthread_join(thread, NULL));
    OK(cuMemFree(b));
    OK(cuMemFree(a));
}
static void works_before(void *d, int device, size_t bytes) { works(); }
static void works_after(void *d, int device, size_t bytes, uint64_t address) { works(); }

// Takes the memory for which the driver is about to be asked.
static void takes(void *d, int device, size_t bytes) {
    if (!heard++)
        OK(cuMemAlloc(&held, 100 << 20));
}

// Ends the capture of the request.
static void ends(void *d, int device, size_t bytes) {
    if (!heard++)
        OK(cuStreamEndCapture(stream, &graph));
}

static const cachealloc_hook hooks[] = {
    {.size = sizeof(cachealloc_hook), .name = "works", .alloc_preprocess = works_before, .alloc_postprocess = works_after},
    {.size = sizeof(cachealloc_hook), .name = "takes", .alloc_preprocess = takes},
    {.size = sizeof(cachealloc_hook), .name = "ends", .alloc_preprocess = ends},
};

int main(int count, char **arguments) {
    Pointer small, free, asked = 0;
    int64_t ooms;
    const cachealloc_hook *hook = hooks;
    CHECK(count == 3);
    while (strcmp(hook->name, arguments[1]))
        CHECK(++hook < hooks + sizeof hooks / sizeof *hooks);
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuStreamBeginCapture = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&cuStreamEndCapture = dlsym(driver, "cuStreamEndCapture");
    OK(((int (*)(void **, unsigned))dlsym(driver, "cuStreamCreate"))(&stream, 1));
    OK(cuMemAlloc(&small, 3 << 20));
    OK(cuMemAlloc(&free, 24 << 20));
    OK(cuStreamBeginCapture(stream, atoi(arguments[2])));
    OK(cuMemFree(free));
    OK(cachealloc_hook_push(hook));
    int code = cuMemAlloc(&asked, 40 << 20);
    OK(cachealloc_hook_pop(hook));
    if (!graph)
        OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph && heard);
    OK(cachealloc_stat(0, "num_ooms", &ooms));
    printf("answer %d, %d refused\n", code, (int)ooms);
    OK(cuMemFree(asked));
    OK(cuMemFree(held));
    OK(cuMemFree(small));
}
