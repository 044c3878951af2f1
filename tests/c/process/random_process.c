// A random valid program of processes. Its output, its files and its exit status depend on its seed
// alone, not on the loaded libraries. ASK is the `cachealloc` command, if the program is to query
// itself.
//
// usage: random_process SEED STEPS [DEPTH]
#include "../check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DEPTH_MAX 2
#define NOBODY 65534

static const char *self;
static uint64_t dice;
static int depth, steps_left, has_cuda, is_thread, files;
static Pointer kept;
static volatile sig_atomic_t signals;

static unsigned roll(unsigned sides) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (unsigned)(dice >> 20) % sides;
}

// In one write, because processes share the output.
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char line[256];
    va_list values;
    int bytes = snprintf(line, sizeof line, "%*s", 2 * depth, "");
    va_start(values, format);
    bytes += vsnprintf(line + bytes, sizeof line - (size_t)bytes - 1, format, values);
    va_end(values);
    line[bytes] = '\n';
    CHECK(write(1, line, (size_t)bytes + 1) == bytes + 1);
}

static void count_signal(int number) { (void)number, signals++; }

// Prints how a child ended.
static void wait_for(pid_t child) {
    int status = 0;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, __WALL) == child);
    say("ended %x", status & 0xff7f); // without the bit of a core dump
}

static void arguments_for_self(char *words, char **list, int steps) {
    snprintf(words, 64, "%u", roll(1u << 30) + 1);
    snprintf(words + 64, 64, "%d", steps);
    snprintf(words + 128, 64, "%d", depth);
    list[0] = (char *)self, list[1] = words, list[2] = words + 64, list[3] = words + 128;
    list[4] = NULL;
}

static __attribute__((noinline)) int deep(int levels, size_t bytes, Pointer *block) {
    volatile int code = levels ? deep(levels - 1, bytes, block) : cuMemAlloc(block, bytes);
    return code;
}

static void cuda(void) {
    if (!has_cuda) {
        start_cuda();
        OK(cuMemAlloc(&kept, 1 << 20));
        has_cuda = depth + 1;
    }
    // A child of a process with CUDA cannot use it, and gets errors.
    int failed = 0;
    for (int i = (int)roll(3) * 1000; i >= 0; i--) {
        Pointer block = 0;
        int code = deep(i % 30, 512 + (size_t)(i % 64) * 512, &block);
        failed = code ? code : cuMemFree(block);
    }
    say("pairs answer %d", failed);
}

static void snapshot(void) {
    raise(SIGUSR1);
    for (unsigned i = roll(5000); i; i--)
        getppid();
    say("%d signals", (int)signals);
}

// Whether other processes that see the same `/proc` can query this one: it has CUDA, still has the
// rights to its files, and is visible under its own number.
static int can_be_asked(void) {
    char shown[16] = "";
    ssize_t length = readlink("/proc/self", shown, sizeof shown - 1);
    int has_rights = getuid() != NOBODY && !access("/dev/shm", W_OK);
    return has_cuda == depth + 1 && has_rights && length > 0 && atoi(shown) == getpid();
}

// A living process is found, and its history is not taken away.
static void ask(void) {
    const char *command = getenv("ASK");
    char number[16];
    int codes[2] = {0, 1};
    // The history of the process before it became this program may be taken.
    int questions = getenv("LEFT_HISTORY") ? 1 : 2;
    if (command && can_be_asked())
        for (int i = 0; i < questions; i++) {
            snprintf(number, sizeof number, "%d", getpid());
            const char *words[][5] = {{command, "stats", number}, {command, "recover", number, "--remove"}};
            pid_t child = fork();
            if (!child) {
                int nowhere = open("/dev/null", O_RDWR);
                dup2(nowhere, 1), dup2(nowhere, 2);
                unsetenv("LD_PRELOAD");
                execv(command, (char **)words[i]);
                _exit(99);
            }
            CHECK(waitpid(child, &codes[i], 0) == child);
        }
    say("asked: %s%s", codes[0] ? "unknown" : "known", codes[1] ? "" : ", and dead");
}

static void own_file(void) {
    char name[32];
    snprintf(name, sizeof name, "own.%d.%d", depth, files++);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
    ssize_t written = file < 0 ? -errno : write(file, name, strlen(name));
    say("%s is %d: %zd", name, file, written);
}

// Closes descriptors as a daemon does, perhaps while a snapshot is written.
static void close_all(void) {
    if (roll(2))
        snapshot();
    switch (roll(3)) {
    case 0:
        say("close_range: %ld", syscall(436, 3u, ~0u, 0u));
        break;
    case 1:
        say("close_range: %ld", syscall(436, 3u, ~0u, 2u)); // unshares the table
        break;
    default:
        for (int file = 3; file < 300; file++)
            close(file);
    }
    for (unsigned i = roll(4) + 1; i; i--)
        own_file();
}

static void numbers(void) {
    close(0);
    int first = open("/dev/null", O_RDONLY), second = dup(1), third = fcntl(1, F_DUPFD, 10);
    say("numbers %d %d %d", first, second, third);
    if (roll(2))
        close(second), close(third);
}

static void lock_file(void) {
    int file = open(roll(2) ? self : "locked", O_RDONLY | O_CREAT, 0600);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 10};
    int code = file < 0 ? -errno : fcntl(file, F_SETLK, &lock);
    if (file >= 0 && roll(2))
        snapshot();
    pid_t child = fork();
    if (!child) {
        lock.l_type = F_WRLCK;
        _exit(file < 0 || fcntl(file, F_GETLK, &lock) ? 9 : lock.l_type == F_UNLCK ? 1 : 2);
    }
    say("lock %d", code);
    wait_for(child);
}

static void pipe_end(void) {
    int ends[2];
    char bytes[8];
    OK(pipe(ends));
    CHECK(write(ends[1], "abc", 3) == 3);
    if (roll(2))
        snapshot();
    close(ends[1]);
    ssize_t first = read(ends[0], bytes, 8);
    say("pipe %zd %zd", first, read(ends[0], bytes, 8));
    close(ends[0]);
}

static void signals_wait(void) {
    sigset_t set, pending;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2), raise(SIGTERM);
    sigpending(&pending);
    int both = sigismember(&pending, SIGUSR2) + sigismember(&pending, SIGTERM);
    int taken = sigwaitinfo(&set, NULL) + sigwaitinfo(&set, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(SIGUSR2);
    say("%d pending, took %d, %d signals", both, taken, (int)signals);
}

static void surroundings(void) {
    struct rlimit limit = {64, 64};
    switch (roll(7)) {
    case 0:
        say("folder %d %d", mkdir("in", 0777) ? errno : 0, chdir("in") ? errno : 0);
        break;
    case 1:
        say("umask %o", umask(077));
        break;
    case 2:
        say("limit %d", setrlimit(RLIMIT_NOFILE, &limit) ? errno : 0);
        break;
    case 3:
        say("name %d", prctl(PR_SET_NAME, "other"));
        break;
    case 4:
        say("setuid %d %d", setgid(NOBODY) ? errno : 0, setuid(NOBODY) ? errno : 0);
        break;
    case 5:
        say("undumpable %d", prctl(PR_SET_DUMPABLE, 0));
        break;
    default:
        say("environment %d", putenv("CACHEALLOC_CONF=free_mode:strict"));
    }
}

static void run_on(int steps);
static void end(void) __attribute__((noreturn));
// The unwinder of an ending thread briefly holds the loader's lock. A child made by `clone` at that
// moment would hold it forever.
static int main_thread_lives(void) {
    char line[512] = "";
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        CHECK(read(file, line, sizeof line - 1) > 0);
        close(file);
    }
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[2] != 'Z';
}

static void *in_thread(void *unused) {
    while (main_thread_lives())
        usleep(1000);
    is_thread = 1;
    run_on(steps_left);
    return unused;
}

static void *pairs(void *unused) {
    void *context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    loop(20);
    return unused;
}

static void threads(void) {
    pthread_t thread;
    if (has_cuda == depth + 1) {
        OK(pthread_create(&thread, NULL, pairs, NULL));
        OK(pthread_join(thread, NULL));
    }
    say("thread joined");
}

static void forked(void) {
    unsigned seed = roll(1u << 30) + 1, more = roll(5) + 1;
    pid_t child = fork();
    if (!child) {
        dice = seed, depth++, files = 0;
        run_on((int)more);
    }
    wait_for(child);
}

static int ends_at_once(void *unused) {
    (void)unused;
    syscall(SYS_exit_group, 5);
    return 0;
}

// Creates children without running the C library's fork handlers.
static void cloned(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    static const int flags[] = {CLONE_VM, CLONE_VM | CLONE_VFORK, CLONE_FILES, CLONE_FS};
    unsigned way = roll(5);
    if (way == 4) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (!child)
            syscall(SYS_exit_group, has_cuda ? cuMemFree(kept) : 5);
        wait_for(child);
    } else {
        wait_for(clone(ends_at_once, stack + sizeof stack, flags[way] | SIGCHLD, NULL));
    }
}

// Counts the library's files of the first process of this namespace.
static int files_of_first(void) {
    char own[64];
    struct stat about;
    struct dirent *entry;
    int count = 0;
    OK(stat("/proc/self/ns/pid", &about));
    snprintf(own, sizeof own, "-%lu-1", (unsigned long)about.st_ino);
    DIR *folder = opendir("/dev/shm");
    while (folder && (entry = readdir(folder)))
        count += !!strstr(entry->d_name, own);
    if (folder)
        closedir(folder);
    return count;
}

// The first process of a namespace has a child that is the first process of a nested one.
static int first_of_two(void *unused) {
    (void)unused;
    depth++;
    cuda();
    int before = files_of_first(), code = unshare(CLONE_NEWPID) ? errno : 0;
    for (int i = (int)roll(2); i >= 0; i--)
        forked();
    say("nested %d, %d files lost", code, before - files_of_first());
    end();
}

static void nested(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    pid_t child = clone(first_of_two, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, NULL);
    child > 0 ? wait_for(child) : say("nested %d", errno);
}

static void starts(void) {
    char words[192], *list[5];
    arguments_for_self(words, list, (int)roll(3));
    depth++, snprintf(words + 128, 64, "%d", depth), depth--;
    pid_t child = vfork();
    if (!child) {
        execv(self, list);
        _exit(98);
    }
    wait_for(child);
}

static void becomes(void) {
    char words[192], *list[5];
    arguments_for_self(words, list, steps_left);
    if (roll(2))
        raise(SIGUSR1);
    if (has_cuda == depth + 1)
        setenv("LEFT_HISTORY", "1", 1);
    say("becomes itself");
    execv(self, list);
    say("stays: %d", errno);
}

static void end(void) {
    int code = (int)roll(100);
    if (roll(2))
        raise(SIGUSR1);
    say("ends");
    switch (roll(8)) {
    case 0:
        _exit(code);
    case 1:
        quick_exit(code);
    case 2:
        abort();
    case 3:
        signal(SIGTERM, SIG_DFL), raise(SIGTERM);
    case 4:
        kill(getpid(), SIGKILL);
    case 5:
        // The driver's threads would continue.
        if (has_cuda != depth + 1)
            pthread_exit(NULL);
        __attribute__((fallthrough));
    default:
        exit(code);
    }
}

static void run_on(int steps) {
    typedef void Step(void);
    static Step *const all[] = {cuda, cuda, snapshot, ask, own_file, close_all, numbers, lock_file, pipe_end,
        signals_wait, surroundings, threads, cloned};
    for (steps_left = steps; steps_left-- > 0;) {
        unsigned side = roll(20);
        pthread_t thread;
        if (side < sizeof all / sizeof *all)
            all[side]();
        else if (side == 13 && !is_thread) {
            say("the main thread ends");
            OK(pthread_create(&thread, NULL, in_thread, NULL));
            pthread_exit(NULL);
        } else if (side == 14)
            becomes();
        else if (depth < DEPTH_MAX)
            (side == 15 ? nested : side < 18 ? forked : starts)();
    }
    end();
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    // Otherwise the end of a thread loads it, and takes a descriptor for a moment.
    CHECK(dlopen("libgcc_s.so.1", RTLD_NOW));
    self = arguments[0];
    dice = 88172645463325252u ^ (strtoull(arguments[1], NULL, 10) * 0x9e3779b97f4a7c15u);
    depth = count > 3 ? atoi(arguments[3]) : 0;
    signal(SIGUSR1, count_signal), signal(SIGUSR2, count_signal), signal(SIGTERM, count_signal);
    for (int i = 0; i < 8; i++)
        roll(2);
    run_on(atoi(arguments[2]));
}
