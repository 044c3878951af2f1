// A kernel prints, and the process ends after a free: the text must be there. Ways to end: `main`,
// `exit`, `quick`, `_exit`; `handler` (by _exit, in a signal handler); `told` (by _exit, in another
// thread, which the freeing thread notifies); `joined` (by _exit, after the freeing thread has
// ended); `watchdog` (by _exit, in another thread that knows of nothing, while the kernel never
// ends); `alarm` (by exit, in a signal handler that interrupts a thread waiting for a kernel that
// never ends); `destroyed` (by `main`, while another thread ends the context, in which a later
// kernel never ends).
#include "../check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

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

static void leave_by_exit(int number) {
    (void)number;
    exit(0);
}

static void *context;
static Pointer block;

static void *free_it(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree(block));
    return unused;
}

static void *leave_at_once(void *ms) {
    usleep((int)(intptr_t)ms * 1000);
    _exit(0);
}

static void *destroy(void *unused) {
    int (*cuCtxDestroy)(void *) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxDestroy_v2");
    OK(cuCtxDestroy(context));
    return unused;
}

static void elsewhere(void *(*body)(void *), int ms) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, (void *)(intptr_t)ms));
    if (body == free_it)
        OK(pthread_join(thread, NULL));
}

// Waits much longer than the end waits for frees of other threads, and much shorter than it waits
// for its own.
static int says_whether_it_ends(pid_t child) {
    int tenths_left = 100;
    while (!waitpid(child, NULL, WNOHANG) && --tenths_left)
        usleep(100000);
    kill(child, SIGKILL);
    puts(tenths_left ? "ends" : "stays");
    return 0;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "main";
    int is_alarm = !strcmp(how, "alarm"), never_ends = is_alarm || !strcmp(how, "watchdog");
    pid_t child = never_ends ? fork() : 0;
    if (child)
        return says_whether_it_ends(child);
    start_cuda();
    int ends = !strcmp(how, "destroyed");
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (ends) {
        int (*cuCtxCreate)(void **, unsigned, int) = dlsym(driver, "cuCtxCreate_v2");
        OK(cuCtxCreate(&context, 0, 0));
    }
    *(void **)&cuModuleLoadData = dlsym(driver, "cuModuleLoadData");
    *(void **)&cuModuleGetFunction = dlsym(driver, "cuModuleGetFunction");
    *(void **)&cuStreamCreate = dlsym(driver, "cuStreamCreate");
    *(void **)&cuLaunchKernel = dlsym(driver, "cuLaunchKernel");
    void *module, *kernel, *stream;
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&kernel, module, never_ends ? "spin" : "say"));
    OK(cuStreamCreate(&stream, 1));
    Pointer flag;
    OK(cuMemAlloc(&block, 1 << 20));
    OK(cuMemAlloc(&flag, 1 << 20));
    OK(cuMemsetD8(flag, 0, 8));
    Word number = never_ends ? flag : 1, ns = strcmp(how, "told") ? 15000000 : 1000000, up = 1;
    void *arguments[] = {&number, never_ends ? &up : &ns};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
    if (is_alarm) {
        signal(SIGALRM, leave_by_exit);
        ualarm(100000, 0);
    } else if (never_ends)
        elsewhere(leave_at_once, 100);
    if (!strcmp(how, "joined"))
        elsewhere(free_it, 0);
    else
        OK(cuMemFree(block));
    if (ends) {
        void *spin, *spins[] = {&flag, &up};
        OK(cuModuleGetFunction(&spin, module, "spin"));
        OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spins, 0));
        elsewhere(destroy, 0);
        usleep(50000);
    }
    if (!strcmp(how, "told"))
        elsewhere(leave_at_once, 0);
    if (!strcmp(how, "told") || never_ends)
        for (;;)
            sleep(1);
    if (!strcmp(how, "exit"))
        exit(0);
    if (!strcmp(how, "quick"))
        quick_exit(0);
    if (!strcmp(how, "_exit") || !strcmp(how, "joined"))
        _exit(0);
    if (!strcmp(how, "handler")) {
        signal(SIGUSR2, leave);
        raise(SIGUSR2);
    }
    return 0;
}
