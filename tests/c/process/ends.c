// Programs whose exit must not change while the library still writes; one per argument.
#include "../check.h"
#include <errno.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

// Shared between a program and the process that watches it.
static struct {
    volatile double sent;
    // Processor time of the working threads since the signal.
    volatile long worked_ns;
    volatile int begin;
} *shared;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void rest(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) == -1 && errno == EINTR)
        ;
}

static int wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void share(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
}

// Allocates with a different stack for every number.
static __attribute__((noinline)) void from_many_places(unsigned number, int depth, Pointer *kept) {
    if (depth == 0) {
        OK(cuMemAlloc(kept, 512));
        return;
    }
    if (number & 1)
        from_many_places(number >> 1, depth - 1, kept);
    else
        from_many_places(number >> 1, depth - 1, kept);
    __asm__ volatile("");
}

// Starts CUDA with this many blocks, each allocated in a different place.
static void start(int count) {
    Pointer kept;
    start_cuda();
    for (int i = 0; i < count; i++)
        from_many_places(i, 12, &kept);
}

// ---- a deadly signal

// On a busy machine a thread waits for a processor, and so does the one that stops it: progress is
// measured as processor time.
static void worked(void) {
    static __thread long before_ns;
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    long ns = time.tv_sec * 1000000000L + time.tv_nsec;
    if (shared->sent)
        __sync_fetch_and_add(&shared->worked_ns, ns - before_ns);
    before_ns = ns;
}

static void *work(void *unused) {
    for (;;) {
        for (volatile int i = 0; i < 10000; i++)
            ;
        worked();
    }
    return unused;
}

static void *work_with_malloc(void *unused) {
    for (;;) {
        void *volatile some[16];
        for (int i = 0; i < 16; i++)
            some[i] = malloc(2000 + 7000 * i);
        for (int i = 0; i < 16; i++)
            free(some[i]);
        worked();
    }
    return unused;
}

// May hold a lock that the writer needs, and then continues for a moment.
static void *work_with_cuda(void *unused) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (;;) {
        loop(1);
        worked();
    }
    return unused;
}

// Blocks every signal that a program can block.
static void *work_deaf(void *unused) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return work(unused);
}

static void *make_threads(void *unused) {
    pthread_t thread;
    worked();
    rest(1);
    while (pthread_create(&thread, NULL, make_threads, unused))
        rest(1);
    pthread_detach(pthread_self());
    return unused;
}

// Every thread of the process takes part in a change of the user, by a signal of the C library.
static void *change_user(void *unused) {
    for (;;) {
        OK(setuid(getuid()));
        OK(setgid(getgid()));
        worked();
    }
    return unused;
}

static void *sleep_long(void *unused) {
    rest(10000);
    return unused;
}

static void *cancel_threads(void *unused) {
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleep_long, NULL))
            continue;
        OK(pthread_cancel(thread));
        OK(pthread_join(thread, NULL));
        worked();
    }
    return unused;
}

// The thread is suspended while its child uses its memory.
static void *start_processes(void *unused) {
    for (;;) {
        pid_t child = vfork();
        if (!child) {
            usleep(20000);
            _exit(0);
        }
        if (child > 0)
            waitpid(child, NULL, 0);
        worked();
    }
    return unused;
}

static void tick(union sigval unused) {}

static void *tell_time(void *unused) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick};
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_settime(timer, 0, &each, NULL));
    return work(unused);
}

// Holds the loader's lock nearly always, and is inside the C library, whose internal calls are not
// interposed.
static void *list_objects(void *unused) {
    for (;;) {
        dl_iterate_phdr((int (*)(struct dl_phdr_info *, size_t, void *))abs, NULL);
        worked();
    }
    return unused;
}

// Holds the loader's lock when it is stopped, in the C library and in no system call, and for a
// millisecond after that.
enum { BLOCK_BYTES = 4 << 20 };
static int work_with_lock(struct dl_phdr_info *info, size_t bytes, void *block) {
    (void)info, (void)bytes;
    while (!shared->sent)
        memset(block, 1, BLOCK_BYTES);
    for (int i = 0; i < 4; i++)
        memset(block, 2, BLOCK_BYTES);
    return 1;
}

static void *hold_loader(void *unused) {
    dl_iterate_phdr(work_with_lock, malloc(BLOCK_BYTES));
    for (;;)
        pause();
    return unused;
}

// Two threads end the process at the same time.
static void *tell_another(void *unused) {
    while (!shared->sent)
        ;
    kill(getpid(), SIGINT);
    return work(unused);
}

// After the signal that ends the process none of the program's code runs, however long the names
// take and however many threads compete for the processor.
static int killed(const char *what, int threads_count) {
    void *(*body)(void *) = !strcmp(what, "malloc") ? work_with_malloc
                            : !strcmp(what, "cuda") ? work_with_cuda
                            : !strcmp(what, "deaf") ? work_deaf
                            : !strcmp(what, "made") ? make_threads
                            : !strcmp(what, "user") ? change_user
                            : !strcmp(what, "cancel") ? cancel_threads
                            : !strcmp(what, "vfork") ? start_processes
                            : !strcmp(what, "timer") ? tell_time
                            : !strcmp(what, "loader") ? list_objects
                            : !strcmp(what, "held") ? hold_loader
                            : !strcmp(what, "twice") ? tell_another
                                                    : work;
    share();
    pid_t child = fork();
    if (!child) {
        start(3000);
        for (int i = 0; i < threads_count; i++) {
            pthread_t thread;
            OK(pthread_create(&thread, NULL, body, NULL));
        }
        rest(50);
        shared->sent = now();
        kill(getpid(), SIGTERM);
        rest(700);
        puts("goes on"), fflush(stdout);
        exit(3);
    }
    int code = wait_for(child);
    double worked_ms = shared->worked_ns / 1e6;
    printf("ended with %d\n", code);
    if (worked_ms > 100)
        printf("and went on for %.0f ms\n", worked_ms);
    fprintf(stderr, "%.1f ms of work after the signal, the end after %.1f ms\n", worked_ms,
            (now() - shared->sent) * 1000);
    return 0;
}

// The signal arrives while the process already ends, at a later moment each time.
static int ending(int count) {
    int first = 0, signal = 0;
    for (int i = 0; i < count; i++) {
        share();
        pid_t child = fork();
        if (!child) {
            start(1000);
            shared->begin = 1;
            exit(3);
        }
        while (!shared->begin)
            ;
        rest(4 * i);
        kill(child, SIGTERM);
        int code = wait_for(child);
        first += code == 3;
        signal += code == 143;
    }
    fprintf(stderr, "%d before the signal, %d by it\n", first, signal);
    printf("%d\n", first + signal);
    return 0;
}

// This many processes end at once.
static int many(int count, const char *how) {
    share();
    int codes = 0;
    for (int i = 0; i < count; i++)
        if (!fork()) {
            start(300);
            __sync_fetch_and_add(&shared->begin, 1);
            while (shared->begin < count)
                rest(5);
            if (!strcmp(how, "TERM"))
                raise(SIGTERM);
            exit(0);
        }
    for (int i = 0; i < count; i++) {
        int status;
        CHECK(wait(&status) > 0);
        codes += WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    printf("codes %d\n", codes);
    return 0;
}

// Prints that it leaves, with much left to be written.
static int leaves(void) {
    start(3000);
    puts("leaves"), fflush(stdout);
    return 3;
}

// ---- the environment

static volatile int stop;
static void *change_environment(void *unused) {
    char name[64], value[200];
    for (int i = 0; !stop; i++) {
        snprintf(name, sizeof name, "VARIABLE_%d", i % 5000);
        memset(value, 'x', sizeof value);
        value[i % 190] = 0;
        if (i % 3)
            setenv(name, value, 1);
        else
            unsetenv(name);
        if (i % 5000 == 4999)
            clearenv();
    }
    return unused;
}

static int environment(void) {
    start(3);
    pthread_t thread;
    OK(pthread_create(&thread, NULL, change_environment, NULL));
    for (int i = 0; i < 300; i++) {
        raise(SIGUSR1);
        usleep(2000);
    }
    stop = 1;
    OK(pthread_join(thread, NULL));
    puts("lives");
    return 3;
}

// ---- frees at the end

static Pointer kept[4];
static void free_some(void) {
    for (int i = 0; i < 4; i++)
        OK(cuMemFree(kept[i]));
}

__attribute__((destructor)) static void program_ends(void) {
    if (kept[0])
        puts("the program's destructor");
}

static int frees_at_exit(void) {
    find_driver();
    atexit(free_some);
    void *context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++)
        OK(cuMemAlloc(&kept[i], 3000));
    return 3;
}

// ---- a library that is replaced

static int replaced(const char *path, const char *other) {
    start(3);
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library);
    void (*call)(int (*)(Pointer *, size_t)) = dlsym(library, "call_back");
    CHECK(call);
    call(cuMemAlloc);
    if (strcmp(other, "-"))
        OK(rename(other, path));
    return 3;
}

// ---- host memory

static long virtual_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmSize: %ld", &kib);
    fclose(status);
    return kib;
}

static void limit_memory(long more_kib) {
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = (virtual_kib() + more_kib) << 10;
    OK(setrlimit(RLIMIT_AS, &limit));
}

// No memory is left for the library, neither to record nor to write. The program itself survives,
// because it expects `malloc` to fail.
static int short_of_memory(const char *when, long more_kib) {
    setvbuf(stdout, NULL, _IONBF, 0);
    start(!strcmp(when, "writing") ? 3000 : 3);
    rest(100); // threads that have just begun may still allocate
    limit_memory(more_kib);
    while (malloc(64 << 10))
        ;
    while (malloc(512))
        ;
    if (!strcmp(when, "recording"))
        for (int i = 0; i < 3000; i++)
            from_many_places(i, 12, &kept[0]);
    if (!strcmp(when, "asked")) {
        raise(SIGUSR1);
        rest(200);
    }
    puts("lives");
    return 3;
}

// ---- before the first context

static int early(int has_context) {
    find_driver();
    OK(cuInit(0));
    raise(SIGUSR1);
    puts("lives"), fflush(stdout);
    void *context;
    if (!has_context)
        return 3;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    loop(3);
    return 3;
}

// ---- files

// Folders have the names that the library would use.
static int taken(const char *name) {
    char path[256];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, ".%s.%d.%d.part", name, getpid(), i);
        OK(mkdir(path, 0700));
    }
    start(3);
    return 3;
}

// ---- numbers of files

static void *write_always(void *unused) {
    static const char text[] = "text of the program\n";
    for (;;)
        for (int number = 0; number <= 2; number++)
            if (write(number, text, sizeof text - 1) < 0 && errno != EBADF)
                _exit(4);
    return unused;
}

// The standard files are closed, and written to nevertheless.
static int closed_numbers(void) {
    pthread_t thread;
    start(3000);
    close(0), close(1), close(2);
    OK(pthread_create(&thread, NULL, write_always, NULL));
    return 3;
}

// A thread that unlinks or opens a file from here on is killed, even if another process asks for
// statistics.
static int sealed(const char *how) {
    int is_asked = !strcmp(how, "asked"), is_announced_early = !strcmp(how, "early");
    if (is_announced_early)
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    start(3);
    if (is_asked) {
        char line[256];
        snprintf(line, sizeof line, "(sleep 0.5; LD_PRELOAD= \"$COMMAND\" stats %d) >/dev/null 2>&1 &", getpid());
        OK(system(line));
    }
    // With "tight" also a thread that calls prctl, reads the clock, asks for pending signals, or
    // selects processors.
    static const int FORBIDDEN[] = {
        SYS_unlinkat, SYS_openat,
#ifdef SYS_unlink
        SYS_unlink, SYS_open,
#endif
        SYS_prctl, SYS_clock_gettime, SYS_rt_sigpending, SYS_sched_setaffinity,
    };
    int is_tight = !strcmp(how, "tight"), all = sizeof FORBIDDEN / sizeof *FORBIDDEN;
    int forbidden = is_tight ? all : all - 4, used = 0;
    struct sock_filter code[2 * sizeof FORBIDDEN / sizeof *FORBIDDEN + 2];
    code[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < forbidden; i++) {
        code[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FORBIDDEN[i], 0, 1);
        code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    code[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {used, code};
    if (!is_announced_early)
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    int is_for_all = is_asked || is_announced_early || !strcmp(how, "all") || !strcmp(how, "slow");
    int flags = is_for_all ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    OK((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
    loop(3);
    if (is_tight) {
        Pointer none, large;
        CHECK(cuMemAlloc(&none, (size_t)1 << 45) == 2);
        OK(cuMemAlloc(&large, 128 << 20)); // worth a thread of the library
    }
    if (is_asked)
        sleep(2);
    if (!strcmp(how, "slow"))
        rest(100); // the library's thread continues meanwhile
    puts("sealed"), fflush(stdout);
    return 3;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *way = arguments[1], *word = count > 2 ? arguments[2] : "";
#define WAY(name, call) if (!strcmp(way, name)) return call
    WAY("killed", killed(word, atoi(arguments[3])));
    WAY("ending", ending(atoi(word)));
    WAY("many", many(atoi(word), arguments[3]));
    WAY("leaves", leaves());
    WAY("environment", environment());
    WAY("frees_at_exit", frees_at_exit());
    WAY("replaced", replaced(word, arguments[3]));
    WAY("short_of_memory", short_of_memory(word, atol(arguments[3])));
    WAY("early", early(1));
    WAY("never", early(0));
    WAY("taken", taken(word));
    WAY("sealed", sealed(word));
    WAY("numbers", closed_numbers());
    CHECK(!"a way that this program knows");
}
