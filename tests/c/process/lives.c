// Processes in unusual relations to others: forks, clones, namespaces.
// usage: lives leader | nested | cloned | forked | elsewhere
#include "../check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NO_RIGHT 77

static int files(void) {
    char begin[64];
    snprintf(begin, sizeof begin, "cachealloc-");
    DIR *folder = opendir("/dev/shm");
    struct dirent *entry;
    int count = 0;
    CHECK(folder);
    while ((entry = readdir(folder)))
        count += !strncmp(entry->d_name, begin, strlen(begin));
    closedir(folder);
    return count;
}

static void say_ready(void) { printf("ready %d\n", getpid()), fflush(stdout); }

// Until the test closes stdin.
static void wait_for_the_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
}

static void *goes_on(void *unused) {
    Pointer kept;
    usleep(50000); // the main thread has ended by then
    start_cuda();
    loop(100);
    OK(cuMemAlloc(&kept, 4096));
    say_ready();
    wait_for_the_end();
    exit(3);
    return unused;
}

// The main thread ends, and another thread continues.
static int leader(void) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, goes_on, NULL));
    pthread_exit(NULL);
}

static int in_a_namespace(int flags, int (*body)(void)) {
    if (unshare(flags))
        return NO_RIGHT;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        exit(body());
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int ends_at_once(void) { return 0; }

// Process 1 of a namespace, and of another one inside it.
static int nested_in(void) {
    CHECK(getpid() == 1);
    // Has a separate /dev/shm, because other tests create files in the machine's.
    if (mount("none", "/dev/shm", "tmpfs", 0, NULL))
        return NO_RIGHT;
    start_cuda();
    loop(100);
    int before = files();
    CHECK(before > 0);
    OK(in_a_namespace(CLONE_NEWPID, ends_at_once));
    CHECK(files() == before);
    loop(100);
    return 3;
}

static int nested(void) {
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return NO_RIGHT;
    return in_a_namespace(CLONE_NEWPID, nested_in);
}

// Creates a child by a system call, without any library function.
static int cloned(void) {
    Pointer block;
    start_cuda();
    loop(100);
    OK(cuMemAlloc(&block, 4096));
    long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (!child)
        syscall(SYS_exit_group, cuMemFree(block));
    int status;
    CHECK(waitpid((pid_t)child, &status, 0) == child);
    printf("the child's free answers %d\n", WEXITSTATUS(status));
    OK(cuMemFree(block));
    return 0;
}

// A child that stays has none of the parent's recording.
static int forked(void) {
    start_cuda();
    loop(100);
    pid_t child = fork();
    if (!child) {
        char line[4096];
        int found = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            found += !!strstr(line, "/dev/shm/cachealloc-");
        _exit(found);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("%d of them mapped\n", WEXITSTATUS(status));
    return 0;
}

static int elsewhere_in(void) {
    goes_on(NULL);
    return 0;
}

// In a namespace whose clock has another origin.
static int elsewhere(void) {
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
    if (unshare(CLONE_NEWTIME))
        return NO_RIGHT;
    int file = open("/proc/self/timens_offsets", O_WRONLY);
    CHECK(write(file, "boottime 100000 0", 17) == 17);
    close(file);
    pid_t child = fork();
    if (!child)
        exit(elsewhere_in());
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
#define WAY(name) if (!strcmp(arguments[1], #name)) return name()
    WAY(leader);
    WAY(nested);
    WAY(cloned);
    WAY(forked);
    WAY(elsewhere);
    CHECK(!"a way that this program knows");
}
