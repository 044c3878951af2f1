// Starts a program in random surroundings: another user, limits, namespaces, file systems, signals,
// descriptors, environment. PRELOAD and ASK apply to the program alone.
//
// usage: surroundings SEED PROGRAM ARGUMENTS
#include "../check.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY 65534

static uint64_t dice;

static unsigned roll(unsigned sides) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (unsigned)(dice >> 20) % sides;
}

// What this machine or user forbids is omitted, in both runs alike.
static void try(int code) { (void)code; }

static void limit(int resource, rlim_t value) {
    struct rlimit both = {value, value};
    try(setrlimit(resource, &both));
}

static void limits(void) {
    static const rlim_t stacks[] = {256 << 10, 1 << 20, RLIM_INFINITY};
    if (roll(2))
        limit(RLIMIT_NOFILE, 16 + roll(32));
    if (roll(2))
        limit(RLIMIT_FSIZE, 1 << 20);
    if (roll(2))
        limit(RLIMIT_STACK, stacks[roll(3)]);
    if (roll(2))
        limit(RLIMIT_MEMLOCK, 0);
    if (roll(2))
        limit(RLIMIT_SIGPENDING, 8);
}

// Mounts are visible only to this process and its children.
static void file_systems(void) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return;
    switch (roll(5)) {
    case 0:
        try(mount("none", "/dev/shm", "tmpfs", 0, "size=1m"));
        break;
    case 1:
        try(mount("none", "/dev/shm", "tmpfs", MS_RDONLY, NULL));
        break;
    case 2:
        try(mount("none", "/dev/shm", "tmpfs", 0, "size=64m,mode=0700"));
        break;
    case 3:
        try(mount("none", "/tmp", "tmpfs", MS_RDONLY, NULL));
        break;
    default:
        try(mount("/dev/null", "/proc/cpuinfo", NULL, MS_BIND, NULL));
    }
}

static void namespaces(void) {
    static const int flags[] = {CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET, CLONE_NEWPID, 0x80 /* time */};
    int chosen = flags[roll(5)];
    if (unshare(chosen) || chosen != CLONE_NEWPID)
        return;
    pid_t child = fork();
    int status;
    if (!child)
        return;
    CHECK(waitpid(child, &status, 0) == child);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void signals(void) {
    static const int numbers[] = {SIGCHLD, SIGPIPE, SIGHUP, SIGSYS};
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2 + (int)roll(2)), sigaddset(&set, SIGALRM);
    if (roll(2))
        sigprocmask(SIG_BLOCK, &set, NULL);
    signal(numbers[1 + roll(3)], SIG_IGN);
}

static void descriptors(void) {
    for (unsigned i = roll(6); i; i--)
        try(open("/dev/null", O_RDWR));
    if (roll(3) == 0)
        close(2);
    if (roll(3) == 0)
        close(0);
}

static void process(void) {
    struct sched_param priority = {.sched_priority = 1};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    switch (roll(6)) {
    case 0:
        try(sched_setaffinity(0, sizeof set, &set));
        break;
    case 1:
        try(sched_setscheduler(0, SCHED_RR, &priority));
        break;
    case 2:
        priority.sched_priority = 0;
        try(sched_setscheduler(0, SCHED_BATCH, &priority));
        break;
    case 3:
        try(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        break;
    case 4:
        try(prctl(PR_SET_CHILD_SUBREAPER, 1));
        break;
    default:
        umask(roll(2) ? 077 : 0);
    }
}

static void environment(void) {
    static char many[100000];
    static const char *const set[][2] = {{"LD_BIND_NOW", "1"}, {"MALLOC_ARENA_MAX", "1"}, {"MALLOC_PERTURB_", "165"},
        {"TMPDIR", "/nowhere"}, {"LC_ALL", "tr_TR.UTF-8"}, {"GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0"}};
    for (unsigned i = roll(4); i; i--) {
        unsigned place = roll(6);
        setenv(set[place][0], set[place][1], 1);
    }
    memset(many, 'x', sizeof many - 1);
    if (roll(3) == 0)
        setenv("MANY", many, 1);
    if (roll(3) == 0)
        unsetenv("PATH"), unsetenv("HOME");
}

int main(int count, char **arguments) {
    typedef void Way(void);
    static Way *const ways[] = {environment, descriptors, signals, process, limits, file_systems, namespaces};
    CHECK(count >= 3);
    dice = 88172645463325252u ^ (strtoull(arguments[1], NULL, 10) * 0x9e3779b97f4a7c15u);
    for (int i = 0; i < 8; i++)
        roll(2);
    try(chmod(".", 0777));
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
        if (roll(3) == 0)
            ways[i]();
    if (roll(4) == 0) {
        try(setgid(NOBODY));
        try(setuid(NOBODY));
    }
    if (getenv("PRELOAD"))
        setenv("LD_PRELOAD", getenv("PRELOAD"), 1);
    execv(arguments[2], arguments + 2);
    _exit(97);
}
