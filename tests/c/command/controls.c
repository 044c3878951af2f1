// controls WAY: programs that another process controls; each prints `ready`, and ends with its
// input.
#include "../check.h"
#include <pthread.h>
#include <stdatomic.h>

#define MIB (1l << 20)

static int (*host_function)(void *, void (*)(void *), void *);
static int (*set_async)(Pointer, unsigned char, size_t, void *);
static atomic_int gate;

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static __attribute__((noinline)) void hold_some(Pointer *kept) {
    OK(cuMemAlloc(kept, 3 * MIB));
}

// Holds little memory, keeps much in the cache, and makes no calls.
static void idle(void) {
    Pointer kept, free;
    hold_some(&kept);
    OK(cuMemAlloc(&free, 50 * MIB));
    OK(cuMemFree(free));
    ready();
    while (getchar() != EOF)
        ;
}

static void wait_at_the_gate(void *unused) {
    while (!gate)
        usleep(1000);
}

static void *open_at_a_word(void *unused) {
    getchar();
    gate = 1;
    return unused;
}

// In mode `relaxed`: the device is busy until there is input, and the only thread with a context
// waits for it in the driver.
static void works(void) {
    pthread_t thread;
    Pointer free;
    OK(cuMemAlloc(&free, 50 * MIB));
    OK(host_function(NULL, wait_at_the_gate, NULL));
    OK(cuMemFree(free));
    OK(pthread_create(&thread, NULL, open_at_a_word, NULL));
    ready();
    OK(cuCtxSynchronize());
    while (getchar() != EOF)
        ;
    OK(pthread_join(thread, NULL));
}

// The device is busy until there is input; the program makes no calls.
static void computes(void) {
    Pointer used, free;
    OK(cuMemAlloc(&used, 1 * MIB));
    OK(cuMemAlloc(&free, 50 * MIB));
    OK(set_async(used, 1, 1000, NULL));
    OK(cuMemFree(free));
    ready();
    getchar();
    OK(cuCtxSynchronize());
    while (getchar() != EOF)
        ;
}

// Requests 40 MiB for each letter, and prints the code; `f` frees all of it.
static void grows(void) {
    Pointer held[100];
    int count = 0;
    ready();
    for (int letter; (letter = getchar()) != EOF;) {
        if (letter == 'f')
            while (count)
                OK(cuMemFree(held[--count]));
        else if (letter != '\n') {
            int code = cuMemAlloc(&held[count], 40 * MIB);
            count += !code;
            printf("%d\n", code);
            fflush(stdout);
        }
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&host_function = dlsym(driver, "cuLaunchHostFunc");
    *(void **)&set_async = dlsym(driver, "cuMemsetD8Async");
    Pointer first;
    OK(cuMemAlloc(&first, 1));
    OK(cuMemFree(first));
    if (!strcmp(arguments[1], "idle"))
        idle();
    else if (!strcmp(arguments[1], "works"))
        works();
    else if (!strcmp(arguments[1], "computes"))
        computes();
    else
        grows();
    return 0;
}
