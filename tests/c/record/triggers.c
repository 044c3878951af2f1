// Programs that end, or write a snapshot, in every way; one per argument.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static atomic_int stop, handled;
static Pointer kept[3];

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

static void start_threads(pthread_t *threads, int count) {
    for (int i = 0; i < count; i++)
        OK(pthread_create(&threads[i], NULL, allocate_until_stopped, NULL));
}

static void join_threads(pthread_t *threads, int count) {
    stop = 1;
    for (int i = 0; i < count; i++)
        OK(pthread_join(threads[i], NULL));
}

// Starts CUDA with three live blocks.
static void start(void) {
    start_cuda();
    loop(20);
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&kept[i], 1000 + 5000000 * i));
}

static int wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Sleeps this long, whatever signals arrive.
static void rest(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static int number_of(const char *name) {
    static const struct { const char *name; int number; } signals[] = {
        {"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},   {"ABRT", SIGABRT}, {"XCPU", SIGXCPU},
        {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"QUIT", SIGQUIT},
        {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"IO", SIGIO}, {"PWR", SIGPWR}, {"XFSZ", SIGXFSZ},
        {"SEGV", SIGSEGV}, {"KILL", SIGKILL}, {"CHLD", SIGCHLD}, {"WINCH", SIGWINCH}, {"URG", SIGURG},
    };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!strcmp(signals[i].name, name))
            return signals[i].number;
    CHECK(!"a signal that this program knows");
    return 0;
}

static void note(int signal) {
    (void)signal;
    handled++;
}

// ---- ends

static void *leave(void *unused) {
    usleep(20000);
    exit(7);
    return unused;
}

static void *leave_at_once(void *unused) {
    usleep(20000);
    _exit(7);
    return unused;
}

static int exit_busy(int at_once) {
    start();
    pthread_t threads[4];
    start_threads(threads, 3);
    OK(pthread_create(&threads[3], NULL, at_once ? leave_at_once : leave, NULL));
    for (;;)
        loop(10);
}

static void *leave_now(void *unused) {
    _exit(7);
    return unused;
}

// Two threads end the process at the same time.
static int exit_twice(void) {
    start();
    for (int i = 0; i < 3000; i++)
        OK(cuMemAlloc(&kept[0], 512));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        OK(pthread_create(&threads[i], NULL, leave_now, NULL));
    exit(7);
}

static void leave_in_handler(int signal) {
    (void)signal;
    _exit(5);
}

static timer_t timer;
static void shoot_in(long us, int signal) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec when = {.it_value = {0, us * 1000}};
    OK(timer_settime(timer, 0, &when, NULL));
}

// `_exit` in a handler that interrupted `malloc`, most likely with its lock held.
_Noreturn static int exit_in_malloc(long us) {
    start();
    signal(SIGALRM, leave_in_handler);
    shoot_in(us, SIGALRM);
    for (;;) {
        void *volatile some[64];
        for (int i = 0; i < 64; i++)
            some[i] = malloc(2000 + 700 * i);
        for (int i = 0; i < 64; i++)
            free(some[i]);
    }
}

// The same for an allocation of GPU memory: the library's own locks.
_Noreturn static int exit_in_alloc(long us) {
    start();
    signal(SIGALRM, leave_in_handler);
    shoot_in(us, SIGALRM);
    for (;;)
        loop(10);
}

// Sends a signal that ends the program, which only allocates.
_Noreturn static int killed_in_alloc(long us, int signal) {
    start();
    shoot_in(us, signal);
    for (;;)
        loop(10);
}

// ---- signals and the program's own handlers

static int raise_it(int signal) {
    start();
    raise(signal);
    rest(100);
    puts("goes on");
    return 3;
}

static int killed_busy(int signal) {
    start();
    pthread_t threads[4];
    start_threads(threads, 4);
    usleep(20000);
    kill(getpid(), signal);
    rest(20000);
    return 3;
}

static void with_info(int signal, siginfo_t *info, void *context) {
    CHECK(info && info->si_signo == signal && info->si_code == SI_TKILL && context);
    handled++;
}

static void say(int signal, const char *when) {
    struct sigaction seen;
    OK(sigaction(signal, NULL, &seen));
    const char *name = seen.sa_handler == SIG_DFL             ? "default"
                       : seen.sa_handler == SIG_IGN           ? "ignored"
                       : seen.sa_handler == note              ? "note"
                       : seen.sa_sigaction == with_info       ? "with_info"
                       : seen.sa_handler == leave_in_handler  ? "leave"
                                                              : "SOMEBODY ELSE";
    unsigned long mask = 0;
    for (int i = 1; i < 32; i++)
        mask |= (unsigned long)(sigismember(&seen.sa_mask, i) == 1) << i;
    printf("%s: %s, flags %x, mask %lx, handled %d\n", when, name, seen.sa_flags, mask, handled);
}

static const char *name_of(void (*handler)(int)) {
    return handler == SIG_DFL ? "default" : handler == SIG_IGN ? "ignored" : handler == note ? "note"
           : handler == leave_in_handler ? "leave" : handler == SIG_ERR ? "error" : "SOMEBODY ELSE";
}

static void set(int signal, void *handler, int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = handler;
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaddset(&action.sa_mask, SIGWINCH);
    OK(sigaction(signal, &action, NULL));
}

// Checks everything that a program can see of handlers that it installs before and after CUDA
// starts. Raises the signal only while a handler is installed, so that the run without the library
// survives.
static int handlers(int number) {
    say(number, "at first");
    set(number, note, 0);
    say(number, "before");
    start();
    say(number, "started");
    raise(number);
    say(number, "raised");
    set(number, with_info, SA_SIGINFO | SA_RESTART | SA_NODEFER);
    say(number, "with info");
    raise(number);
    say(number, "raised");
    printf("signal: %s\n", name_of(signal(number, note)));
    say(number, "by signal");
    raise(number);
    say(number, "raised");
    printf("error: %s %d\n", name_of(signal(number, SIG_ERR)), errno == EINVAL);
    say(number, "after an error");
    set(number, note, SA_RESETHAND);
    say(number, "once");
    raise(number);
    say(number, "raised");
    printf("sysv: %s\n", name_of(sysv_signal(number, note)));
    say(number, "sysv");
    raise(number);
    say(number, "raised");
    set(number, note, SA_RESETHAND);
    raise(number);
    printf("bsd: %s\n", name_of(ssignal(number, note)));
    say(number, "bsd");
    raise(number);
    say(number, "raised");
    set(number, SIG_IGN, 0);
    say(number, "ignored");
    raise(number);
    say(number, "raised");
    set(number, SIG_DFL, 0);
    say(number, "default");
    void (*(*past)(int, void (*)(int)))(int) = dlsym(RTLD_DEFAULT, "bsd_signal");
    printf("by another way: %s\n", name_of(past(number, note)));
    say(number, "by another way");
    raise(number);
    set(number, with_info, SA_SIGINFO);
    raise(number);
    say(number, "last");
    rest(50);
    return 0;
}

// Ends as well-behaved programs do: the handler cleans up, and sends the signal again.
static void clean_up(int number) {
    handled++;
    signal(number, SIG_DFL);
    raise(number);
}

static int resend(int number, int before) {
    if (before)
        signal(number, clean_up);
    start();
    if (!before)
        signal(number, clean_up);
    raise(number);
    return 3;
}

// The second signal ends the process, because the handler was for one signal only.
static int once(int number) {
    start();
    set(number, note, SA_RESETHAND);
    raise(number);
    CHECK(handled == 1);
    raise(number);
    return 3;
}

static int ignored(int number) {
    signal(number, SIG_IGN);
    start();
    raise(number);
    rest(50);
    printf("%s\n", name_of(signal(number, SIG_IGN)));
    return 4;
}

static int blocked(int number) {
    start();
    rest(50); // threads of the driver block what is not theirs, a moment later
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, number);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    kill(getpid(), number);
    rest(50);
    OK(sigpending(&pending));
    printf("pending %d\n", sigismember(&pending, number));
    int taken;
    OK(sigwait(&set, &taken));
    printf("taken %d\n", taken == number);
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
    return 0;
}

// A child inherits the parent's signal handling: it lives or dies as without the library.
static int in_child(int number, const char *how, char *self) {
    if (!strcmp(how, "ignored"))
        signal(number, SIG_IGN);
    start();
    if (!strcmp(how, "ignored_later"))
        signal(number, SIG_IGN);
    pid_t child;
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    char *const arguments[] = {self, "stand", name, NULL};
    if (!strcmp(how, "vfork")) {
        child = vfork();
        if (!child) {
            kill(getpid(), number);
            _exit(6);
        }
    } else if (!strcmp(how, "spawn") || !strncmp(how, "ignored", 7)) {
        OK(posix_spawn(&child, self, NULL, NULL, arguments, environ));
    } else {
        child = fork();
        if (!child) {
            say(number, "in the child"), fflush(stdout);
            if (!strcmp(how, "exec")) {
                execv(self, arguments);
                _exit(9);
            }
            if (!strcmp(how, "handler")) {
                printf("before %s\n", name_of(signal(number, note))), fflush(stdout);
                raise(number);
                signal(number, SIG_DFL);
                say(number, "again"), fflush(stdout);
            }
            raise(number);
            _exit(6);
        }
    }
    printf("the child: %d\n", wait_for(child));
    loop(5);
    return 0;
}

static int stand(int number) {
    raise(number);
    return 6;
}

static int no_cuda(int number) {
    if (number)
        raise(number);
    CHECK(dlsym(RTLD_DEFAULT, "puts"));
    exit(3);
}

// ---- storms

// Sends this many signals while four threads allocate; the snapshot at the end must still be
// written.
static int storm(int number, int count, int threads_count) {
    start();
    pthread_t threads[8];
    start_threads(threads, threads_count);
    for (int i = 0; i < count; i++) {
        if (i % 2)
            kill(getpid(), number);
        else
            pthread_kill(threads[i % threads_count], number);
        if (i % 8 == 0)
            usleep(100);
    }
    join_threads(threads, threads_count);
    rest(100);
    printf("handled %d\n", handled > 0);
    return 0;
}

// Signals while handlers change all the time.
static void *change(void *number) {
    for (int i = 0; !stop; i++) {
        set(*(int *)number, i & 1 ? (void *)note : (void *)with_info, i & 1 ? 0 : SA_SIGINFO);
        if (i % 5 == 0)
            signal(*(int *)number, SIG_IGN);
    }
    return NULL;
}

static int storm_of_changes(int number) {
    signal(number, SIG_IGN);
    start();
    pthread_t threads[3];
    for (int i = 0; i < 2; i++)
        OK(pthread_create(&threads[i], NULL, change, &number));
    for (int i = 0; i < 2000; i++)
        raise(number);
    stop = 1;
    for (int i = 0; i < 2; i++)
        OK(pthread_join(threads[i], NULL));
    return 0;
}

// Requests a snapshot by a signal right before the end, which must not truncate the file.
static int signal_then(const char *end) {
    start();
    for (int i = 0; i < 5000; i++)
        OK(cuMemAlloc(&kept[0], 512));
    raise(SIGUSR1);
    if (!strcmp(end, "_exit"))
        _exit(3);
    return 3;
}

// ---- memory

static int out_of_memory(int times) {
    start();
    int code = 0;
    for (int i = 0; i < times; i++) {
        Pointer pointer;
        while (!(code = cuMemAlloc(&pointer, 10000000)))
            ;
    }
    printf("code %d\n", code);
    fflush(stdout);
    _exit(0);
}

static void *fail_once(void *unused) {
    use_context();
    Pointer pointer;
    int code = cuMemAlloc(&pointer, 3ull << 30);
    printf("code %d\n", code), fflush(stdout);
    return unused;
}

static int out_of_memory_on_a_small_stack(void) {
    start();
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    OK(pthread_attr_setstacksize(&attributes, 64 << 10));
    OK(pthread_create(&thread, &attributes, fail_once, NULL));
    OK(pthread_join(thread, NULL));
    return 0;
}

static void *fail_cancelled(void *unused) {
    use_context();
    pthread_cancel(pthread_self());
    Pointer pointer;
    CHECK(cuMemAlloc(&pointer, 3ull << 30) == 2);
    if (cachealloc_snapshot)
        OK(cachealloc_snapshot("cancelled.pickle"));
    puts("both calls return"), fflush(stdout);
    pthread_testcancel();
    puts("is not cancelled");
    return unused;
}

// A thread is cancelled where it is without the library.
static int cancelled(void) {
    start();
    pthread_t thread;
    void *result;
    OK(pthread_create(&thread, NULL, fail_cancelled, NULL));
    OK(pthread_join(thread, &result));
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    return 0;
}

// ---- files

static int file_limit(const char *how) {
    start();
    for (int i = 0; i < 5000; i++)
        OK(cuMemAlloc(&kept[0], 512));
    struct rlimit limit = {1000, 1000};
    OK(setrlimit(RLIMIT_FSIZE, &limit));
    if (!strcmp(how, "signal")) {
        raise(SIGUSR1);
        rest(200);
    } else if (!strcmp(how, "api")) {
        printf("answer %d\n", cachealloc_snapshot ? cachealloc_snapshot("api.pickle") : EFBIG);
    }
    return 3;
}

static int api(char **paths) {
    start();
    for (; *paths; paths++) {
        const char *path = !strcmp(*paths, "NULL") ? NULL : *paths;
        errno = 77;
        int code = cachealloc_snapshot ? cachealloc_snapshot(path) : -1;
        printf("%d\n", code);
        CHECK(errno == 77);
    }
    return 0;
}

static int api_anywhere(void) {
    printf("before: %d\n", cachealloc_snapshot("before.pickle"));
    start();
    pthread_t threads[4];
    start_threads(threads, 4);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child)
            _exit(cachealloc_snapshot("child.pickle") ? 0 : 1);
        CHECK(wait_for(child) == 0);
        OK(cachealloc_snapshot("parent.pickle"));
    }
    join_threads(threads, 4);
    return 0;
}

static void *snapshot_once(void *unused) {
    OK(cachealloc_snapshot("small.pickle"));
    return unused;
}

static int api_on_a_small_stack(void) {
    start();
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    OK(pthread_attr_setstacksize(&attributes, 64 << 10));
    OK(pthread_create(&thread, &attributes, snapshot_once, NULL));
    OK(pthread_join(thread, NULL));
    return 0;
}

// Requests snapshots as fast as possible, while four threads allocate.
static int api_busy(int count) {
    start();
    pthread_t threads[4];
    start_threads(threads, 4);
    for (int i = 0; i < count; i++)
        OK(cachealloc_snapshot(NULL));
    join_threads(threads, 4);
    return 0;
}

static int (*create)(void **, unsigned, int), (*destroy)(void *);
static int (*make_stream)(void **, unsigned), (*host_function)(void *, void (*)(void *), void *);
static int (*alloc_async)(Pointer *, size_t, void *), (*free_async)(Pointer, void *);

static void find_more(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(driver, "cuCtxDestroy_v2");
    *(void **)&make_stream = dlsym(driver, "cuStreamCreate");
    *(void **)&host_function = dlsym(driver, "cuLaunchHostFunc");
    *(void **)&alloc_async = dlsym(driver, "cuMemAllocAsync");
    *(void **)&free_async = dlsym(driver, "cuMemFreeAsync");
    CHECK(create && destroy && make_stream && host_function && alloc_async && free_async);
}

static atomic_int gate;
static void wait_at_the_gate(void *unused) {
    while (!gate)
        usleep(1000);
}

// Blocks freed on a stream that has not reached the free yet: neither allocated nor free.
static int pending(void) {
    start();
    find_more();
    void *stream;
    Pointer some[8];
    OK(make_stream(&stream, 1));
    for (int i = 0; i < 8; i++)
        OK(alloc_async(&some[i], 3000, stream));
    OK(host_function(stream, wait_at_the_gate, NULL));
    for (int i = 0; i < 5; i++)
        OK(cuMemFree(some[i]));
    OK(cachealloc_snapshot("pending.pickle"));
    gate = 1;
    OK(cuCtxSynchronize());
    for (int i = 5; i < 8; i++)
        OK(free_async(some[i], stream));
    return 0;
}

// A context ends with memory in it, and another one begins at the same addresses.
static int context_ends(void) {
    start();
    find_more();
    for (int i = 0; i < 4; i++) {
        void *context;
        OK(create(&context, 0, 0));
        loop(5);
        for (int k = 0; k < 3; k++)
            OK(cuMemAlloc(&kept[k], 1000 + 5000000 * k));
        OK(cachealloc_snapshot(NULL));
        OK(destroy(context));
    }
    return 0;
}

// Two contexts of one device, each of which needs what the other one has just released.
static void *need_most(void *context) {
    OK(cuCtxSetCurrent(context));
    for (int i = 0; !stop; i++) {
        Pointer pointer;
        if (!cuMemAlloc(&pointer, (600 + i % 7) << 20))
            OK(cuMemFree(pointer));
    }
    return NULL;
}

static int two_contexts(int count) {
    start();
    find_more();
    pthread_t threads[2];
    void *contexts[2];
    for (int i = 0; i < 2; i++) {
        OK(create(&contexts[i], 0, 0));
        OK(pthread_create(&threads[i], NULL, need_most, contexts[i]));
    }
    for (int i = 0; i < count; i++)
        OK(cachealloc_snapshot(NULL));
    join_threads(threads, 2);
    return 0;
}

static int move(const char *folder) {
    start();
    OK(chdir(folder));
    raise(SIGUSR1);
    rest(100);
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *way = arguments[1], *word = count > 2 ? arguments[2] : "";
#define WAY(name, call) if (!strcmp(way, name)) return call
    WAY("exit_busy", exit_busy(0));
    WAY("_exit_busy", exit_busy(1));
    WAY("exit_twice", exit_twice());
    WAY("exit_in_malloc", exit_in_malloc(atol(word)));
    WAY("exit_in_alloc", exit_in_alloc(atol(word)));
    WAY("killed_in_alloc", killed_in_alloc(atol(word), number_of(arguments[3])));
    WAY("raise", raise_it(number_of(word)));
    WAY("killed_busy", killed_busy(number_of(word)));
    WAY("handlers", handlers(number_of(word)));
    WAY("resend", resend(number_of(word), count > 3));
    WAY("once", once(number_of(word)));
    WAY("ignored", ignored(number_of(word)));
    WAY("blocked", blocked(number_of(word)));
    WAY("in_child", in_child(number_of(word), arguments[3], arguments[0]));
    WAY("stand", stand(atoi(word)));
    WAY("no_cuda", no_cuda(count > 2 ? number_of(word) : 0));
    WAY("storm", storm(number_of(word), atoi(arguments[3]), 4));
    WAY("storm_of_changes", storm_of_changes(number_of(word)));
    WAY("signal_then", signal_then(word));
    WAY("out_of_memory", out_of_memory(atoi(word)));
    WAY("out_of_memory_on_a_small_stack", out_of_memory_on_a_small_stack());
    WAY("cancelled", cancelled());
    WAY("file_limit", file_limit(word));
    WAY("api", api(arguments + 2));
    WAY("api_anywhere", api_anywhere());
    WAY("api_on_a_small_stack", api_on_a_small_stack());
    WAY("api_busy", api_busy(atoi(word)));
    WAY("pending", pending());
    WAY("context_ends", context_ends());
    WAY("two_contexts", two_contexts(atoi(word)));
    WAY("move", move(word));
    start();
    WAY("return", 3);
    if (!strcmp(way, "exit"))
        exit(3);
    if (!strcmp(way, "_exit"))
        _exit(3);
    if (!strcmp(way, "_Exit"))
        _Exit(3);
    if (!strcmp(way, "quick_exit"))
        quick_exit(3);
    if (!strcmp(way, "abort"))
        abort();
    CHECK(!"a way that this program knows");
}
