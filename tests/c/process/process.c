// Ways of starting, forking and ending, one per argument.
#include "../check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static atomic_int stop;

static int wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void use_context(void) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

static void *allocate_until_stopped(void *unused) {
    use_context();
    while (!stop)
        loop(10);
    return unused;
}

static void *allocate_and_end(void *unused) {
    use_context();
    loop(20);
    return unused;
}

static void *leave(void *unused) {
    usleep(20000);
    exit(7);
    return unused;
}

// A child forked before CUDA was started is a separate process with its own CUDA.
static int fork_before(void) {
    pid_t child = fork();
    if (!child) {
        start_cuda();
        loop(100);
        exit(5);
    }
    CHECK(wait_for(child) == 5);
    start_cuda();
    loop(100);
    return 0;
}

// CUDA does not survive a fork: every call in the child fails as without the library, and the
// parent continues. Another thread is inside an allocation at any of these moments.
static int fork_after(void) {
    start_cuda();
    Pointer kept;
    OK(cuMemAlloc(&kept, 1000));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, allocate_until_stopped, NULL));
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (!child) {
            Pointer pointer = 0;
            int allocated = cuMemAlloc(&pointer, 4096), freed = cuMemFree(kept);
            int waited = cuCtxSynchronize();
            if (!i)
                printf("in the child: %d %d %d\n", allocated, freed, waited), fflush(stdout);
            _exit(allocated && freed && waited ? 9 : 8);
        }
        CHECK(wait_for(child) == 9);
        loop(5);
    }
    stop = 1;
    OK(pthread_join(thread, NULL));
    OK(cuMemFree(kept));
    return 0;
}

// A child that leaves through exit(3): handlers of the parent run in it.
static int fork_and_exit(void) {
    start_cuda();
    loop(20);
    pid_t child = fork();
    if (!child)
        exit(6);
    CHECK(wait_for(child) == 6);
    loop(20);
    return 0;
}

// A child that shares the parent's memory until it ends.
static int vfork_exit(void) {
    start_cuda();
    loop(20);
    pid_t child = vfork();
    if (!child)
        _exit(6);
    CHECK(wait_for(child) == 6);
    loop(20);
    return 0;
}

// The child also announces a seccomp filter (no_new_privs), which does not concern the parent.
static int vfork_seals(void) {
    start_cuda();
    loop(20);
    pid_t child = vfork();
    if (!child) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(6);
    }
    CHECK(wait_for(child) == 6);
    Pointer none;
    CHECK(cuMemAlloc(&none, (size_t)1 << 45) == 2);
    return 0;
}

static int threads_end(void) {
    start_cuda();
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            OK(pthread_create(&threads[i], NULL, allocate_and_end, NULL));
        for (int i = 0; i < 4; i++)
            OK(pthread_join(threads[i], NULL));
    }
    return 0;
}

// Another thread ends the process while this one and a third allocate.
static int exit_from_thread(void) {
    start_cuda();
    pthread_t thread;
    OK(pthread_create(&thread, NULL, allocate_until_stopped, NULL));
    OK(pthread_create(&thread, NULL, leave, NULL));
    for (;;)
        loop(10);
}

// Frees in a handler that runs before, and one that runs after, the library's own.
static Pointer late[2];
static void free_first(void) { cuMemFree(late[0]); }
static void free_second(void) { cuMemFree(late[1]); }
static int free_at_exit(void) {
    atexit(free_first);
    start_cuda();
    OK(cuMemAlloc(&late[0], 4096));
    OK(cuMemAlloc(&late[1], 4096));
    atexit(free_second);
    return 0;
}

static int run_again(char **arguments) {
    start_cuda();
    loop(20);
    char *const next[] = {arguments[0], "use", NULL};
    execv(arguments[0], next);
    return 1;
}

// The program closes the plugin that used CUDA, again and again.
static int close_plugin(const char *path) {
    for (int i = 0; i < 10; i++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(plugin);
        void (*work)(void) = dlsym(plugin, "work");
        CHECK(work);
        work();
        OK(dlclose(plugin));
    }
    return 0;
}

// A thread with a small stack is the first to allocate: without the library, the driver's calls
// need less.
static int small_stack(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    start_cuda();
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setstacksize(&attributes, 40 << 10));
    OK(pthread_create(&thread, &attributes, allocate_and_end, NULL));
    OK(pthread_join(thread, NULL));
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *way = arguments[1];
#define WAY(name) if (!strcmp(way, #name)) return name()
    WAY(fork_before);
    WAY(fork_after);
    WAY(fork_and_exit);
    WAY(vfork_exit);
    WAY(vfork_seals);
    WAY(threads_end);
    WAY(small_stack);
    WAY(exit_from_thread);
    WAY(free_at_exit);
    if (!strcmp(way, "exec"))
        return run_again(arguments);
    if (!strcmp(way, "close_plugin"))
        return close_plugin(arguments[2]);
    start_cuda();
    loop(20);
    if (!strcmp(way, "_exit"))
        _exit(3);
    if (!strcmp(way, "quick_exit"))
        quick_exit(4);
    if (!strcmp(way, "abort"))
        abort();
    puts("used");
    return 0;
}
