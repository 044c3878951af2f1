// Checks what the library's threads share with the program. usage: apart locks | pipe | closes N |
// scheduled; with "together" after it, the library's thread gets no separate descriptor table
#include "../check.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SNAPSHOT "s.pickle"

static void rest(void) { usleep(1000); }

// Has a different stack for each depth and size, so that writing the snapshot takes a while.
static __attribute__((noinline)) void deep(int depth, size_t bytes) {
    volatile char here[32];
    here[0] = (char)depth;
    if (depth) {
        deep(depth - 1, bytes);
        here[1] = here[0];
        return;
    }
    Pointer block;
    OK(cuMemAlloc(&block, bytes));
    OK(cuMemFree(block));
}

static void record(int count) {
    for (int i = 0; i < count; i++)
        deep(i % 30, 512 + (size_t)(i % 64) * 512);
}

static void snapshot(void) {
    unlink(SNAPSHOT);
    OK(kill(getpid(), SIGUSR1));
    while (access(SNAPSHOT, F_OK))
        rest();
}

// Locks the program's own file, which the library's thread reads for names.
static int locks(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 10}, other = lock;
    CHECK(file >= 0);
    OK(fcntl(file, F_SETLK, &lock));
    record(30);
    snapshot();
    pid_t child = fork();
    if (!child) {
        other.l_type = F_WRLCK;
        OK(fcntl(file, F_GETLK, &other));
        _exit(other.l_type == F_RDLCK && other.l_pid == getppid() ? 0 : 7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("%s\n", WIFEXITED(status) && !WEXITSTATUS(status) ? "locked" : "the lock is gone");
    return 0;
}

// A reader sees the end of the pipe once the program has closed the write end.
static int pipe_ends(int *ends) {
    char byte;
    record(30);
    snapshot();
    close(ends[1]);
    printf("read %zd\n", read(ends[0], &byte, 1));
    return 0;
}

// A daemon closes every descriptor that it does not know, and opens its own files.
static int closes(int rounds) {
    int wrong = 0;
    record(60000);
    for (int round = 0; round < rounds; round++) {
        unlink(SNAPSHOT);
        OK(kill(getpid(), SIGUSR1));
        // Waits for a file of the library, if its descriptor can be seen at all.
        for (int tries = 0, seen = 0; tries < 300 && !seen; tries++, rest())
            for (int file = 3; file < 30 && !seen; file++)
                seen = fcntl(file, F_GETFD) != -1;
        for (int file = 3; file < 256; file++)
            close(file);
        char name[64];
        int files[8];
        for (int i = 0; i < 8; i++) {
            snprintf(name, sizeof name, "own.%d", i);
            files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
            CHECK(write(files[i], "mine\n", 5) == 5);
        }
        // A snapshot whose descriptor was closed never appears.
        for (int tries = 0; tries < 3000 && access(SNAPSHOT, F_OK); tries++)
            rest();
        for (int i = 0; i < 8; i++) {
            struct stat about;
            snprintf(name, sizeof name, "own.%d", i);
            OK(stat(name, &about));
            wrong += about.st_size != 5 || fcntl(files[i], F_GETFD) == -1;
            close(files[i]);
            unlink(name);
        }
    }
    printf("%d wrong\n", wrong);
    return 0;
}

// Compares the scheduling of the library's threads with that of the program: real-time priority,
// one processor.
static int scheduled(int processors) {
    cpu_set_t set;
    int ours = 0, as_usual = 0;
    record(30);
    while (ours < 2) {
        DIR *folder = opendir("/proc/self/task");
        struct dirent *entry;
        CHECK(folder);
        ours = as_usual = 0;
        while ((entry = readdir(folder))) {
            char path[300], name[32] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
            FILE *file = fopen(path, "r");
            if (!file)
                continue;
            if (fscanf(file, "%31s", name) != 1)
                name[0] = 0;
            fclose(file);
            if (strcmp(name, "cachealloc"))
                continue;
            int thread = atoi(entry->d_name);
            OK(sched_getaffinity(thread, sizeof set, &set));
            ours++;
            as_usual += sched_getscheduler(thread) == SCHED_OTHER && CPU_COUNT(&set) == processors;
        }
        closedir(folder);
        rest();
    }
    puts(as_usual == ours ? "as usual" : "as the program");
    return 0;
}

static int narrow(void) {
    cpu_set_t all, one;
    OK(sched_getaffinity(0, sizeof all, &all));
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    struct sched_param priority = {10};
    (void)sched_setscheduler(0, SCHED_FIFO, &priority); // only root may
    return CPU_COUNT(&all);
}

// Installed without a notice to the library, as by a container: refused calls return an error.
static void refuse_a_table(void) {
#define REFUSE(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),    \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(436), // close_range
        REFUSE(SYS_unshare),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK((int)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    int ends[2], processors = 0;
    OK(pipe(ends));
    if (!strcmp(arguments[count - 1], "together"))
        refuse_a_table();
    if (!strcmp(arguments[1], "scheduled"))
        processors = narrow();
    start_cuda();
    if (!strcmp(arguments[1], "locks"))
        return locks();
    if (!strcmp(arguments[1], "pipe"))
        return pipe_ends(ends);
    if (!strcmp(arguments[1], "closes"))
        return closes(atoi(arguments[2]));
    if (!strcmp(arguments[1], "scheduled"))
        return scheduled(processors);
    CHECK(!"a way that this program knows");
}
