// ranges HOW: a program that marks its phases, and allocates a different amount in each, so that
// they can be told apart. `phases`: nested, in two threads, with unbalanced pushes and pops.
// `many`: more names than there is room for. `late`: recording begins in the middle.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>
#include <pthread.h>

#define KIB (1 << 10)

static void push(const char *name) {
    OK(cachealloc_range_push(name));
}

static void keep(size_t bytes) {
    Pointer block;
    OK(cuMemAlloc(&block, bytes));
}

static void *work(void *context) {
    OK(cuCtxSetCurrent(context));
    push("worker");
    keep(64 * KIB);
    cachealloc_range_pop();
    return NULL;
}

static void phases(void) {
    CHECK(cachealloc_range_push(NULL) == EINVAL);
    keep(1 * KIB);
    char name[16] = "load";
    push(name);
    memcpy(name, "gone", 5); // the name is the program's again
    keep(2 * KIB);
    cachealloc_range_pop();
    for (int i = 0; i < 4; i++) {
        push("step");
        push("forward");
        keep(4 * KIB);
        cachealloc_range_pop();
        push("backward");
        Pointer block;
        OK(cuMemAlloc(&block, 100 * KIB));
        OK(cuMemFree(block));
        cachealloc_range_pop();
        push("nothing"); // is left again before the next entry
        cachealloc_range_pop();
        keep(8 * KIB);
        cachealloc_range_pop();
    }
    push("main");
    void *context;
    int (*current)(void **) = (int (*)(void **))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent");
    OK(current(&context));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, work, context));
    OK(pthread_join(thread, NULL));
    keep(16 * KIB);
    cachealloc_range_pop();
    // One pop too many, and a nesting deeper than is tracked.
    cachealloc_range_pop();
    for (int i = 0; i < 200; i++)
        push("deep");
    for (int i = 0; i < 199; i++)
        cachealloc_range_pop();
    keep(32 * KIB);
    cachealloc_range_pop();
    keep(1 * KIB);
}

static void many(void) {
    push("step");
    for (int i = 0; i < 20000; i++) {
        char name[16];
        snprintf(name, sizeof name, "number %d", i);
        push(name);
        if (i == 0 || i == 19999)
            keep(i ? 8 * KIB : 4 * KIB);
        cachealloc_range_pop();
    }
    keep(16 * KIB);
    cachealloc_range_pop();
    keep(1 * KIB);
}

static void late(void) {
    push("before");
    OK(cachealloc_record("all"));
    push("inside");
    keep(4 * KIB);
    cachealloc_range_pop();
    cachealloc_range_pop();
    keep(1 * KIB);
    OK(cachealloc_snapshot("late.pickle"));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    start_cuda();
    if (!strcmp(arguments[1], "phases"))
        phases();
    else if (!strcmp(arguments[1], "many"))
        many();
    else
        late();
    return 0;
}
