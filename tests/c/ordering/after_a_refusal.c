// What the driver refuses leaves no trace: `after_a_refusal capture` begins a capture of no stream,
// `request` asks for too much memory, and `nothing` does neither. Then pinned memory is requested and
// freed four times. `cancelled` unloads a module in a thread whose cancellation is pending.
#include "../check.h"
#include <pthread.h>

static void *driver, *context, *module;

static void *function(const char *name) {
    void *found = dlsym(driver, name);
    CHECK(found);
    return found;
}

static void *unload(void *unused) {
    int (*cuModuleUnload)(void *) = function("cuModuleUnload");
    OK(cuCtxSetCurrent(context));
    OK(pthread_cancel(pthread_self()));
    OK(cuModuleUnload(module));
    puts("unloaded");
    fflush(stdout);
    return unused;
}

int main(int count, char **words) {
    CHECK(count == 2);
    start_cuda();
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*cuCtxGetCurrent)(void **) = function("cuCtxGetCurrent");
    OK(cuCtxGetCurrent(&context));
    if (!strcmp(words[1], "cancelled")) {
        static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
        int (*cuModuleLoadData)(void **, const void *) = function("cuModuleLoadData");
        pthread_t thread;
        OK(cuModuleLoadData(&module, image));
        OK(pthread_create(&thread, NULL, unload, NULL));
        OK(pthread_join(thread, NULL));
        return 0;
    }
    if (!strcmp(words[1], "capture")) {
        int (*cuStreamBeginCapture)(void *, int) = function("cuStreamBeginCapture_v2");
        CHECK(cuStreamBeginCapture((void *)0x1230, 2) == 400);
    }
    Pointer block;
    if (!strcmp(words[1], "request"))
        CHECK(cuMemAlloc(&block, 1ULL << 42) == 2);
    int (*cuMemHostAlloc)(void **, size_t, unsigned) = function("cuMemHostAlloc");
    int (*cuMemFreeHost)(void *) = function("cuMemFreeHost");
    for (int i = 0; i < 4; i++) {
        void *pinned;
        OK(cuMemHostAlloc(&pinned, 65536, 0));
        OK(cuMemFreeHost(pinned));
    }
    return 0;
}
