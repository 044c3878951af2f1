// A kernel prints, and the process ends behind a free: the text is there. How it ends: `main`, `exit`,
// `quick`, `_exit`, `handler` (by _exit, from a signal handler).
#include "check.h"
#include <signal.h>

typedef unsigned long long Word;

static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);

static void leave(int number) {
    (void)number;
    _exit(0);
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "main";
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuModuleLoadData = dlsym(driver, "cuModuleLoadData");
    *(void **)&cuModuleGetFunction = dlsym(driver, "cuModuleGetFunction");
    *(void **)&cuStreamCreate = dlsym(driver, "cuStreamCreate");
    *(void **)&cuLaunchKernel = dlsym(driver, "cuLaunchKernel");
    void *module, *kernel, *stream;
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&kernel, module, "say"));
    OK(cuStreamCreate(&stream, 1));
    Pointer block;
    OK(cuMemAlloc(&block, 1 << 20));
    Word number = 1, ns = 15000000;
    void *arguments[] = {&number, &ns};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
    OK(cuMemFree(block));
    if (!strcmp(how, "exit"))
        exit(0);
    if (!strcmp(how, "quick"))
        quick_exit(0);
    if (!strcmp(how, "_exit"))
        _exit(0);
    if (!strcmp(how, "handler")) {
        signal(SIGUSR2, leave);
        raise(SIGUSR2);
    }
    return 0;
}
