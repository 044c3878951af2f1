// freezer MS PROGRAM...: MS milliseconds after the first output of the program, stops all its threads
// for 6 seconds, as a debugger does, and resumes the first one slightly before the others. Exits as
// the program does.
#include "../check.h"
#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { THREADS_MAX = 64 };

static int threads_of(pid_t process, pid_t *threads) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *folder = opendir(path);
    CHECK(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) && count < THREADS_MAX;)
        if (atoi(entry->d_name))
            threads[count++] = atoi(entry->d_name);
    closedir(folder);
    return count;
}

int main(int count, char **arguments) {
    CHECK(count > 2);
    int pipes[2];
    OK(pipe(pipes));
    pid_t child = fork();
    if (!child) {
        dup2(pipes[1], 1);
        setenv("LD_PRELOAD", getenv("FREEZER_PRELOAD"), 1);
        execv(arguments[2], arguments + 2);
        _exit(126);
    }
    close(pipes[1]);
    char line[64];
    CHECK(read(pipes[0], line, sizeof line) > 0);
    usleep(atoi(arguments[1]) * 1000);
    pid_t threads[THREADS_MAX];
    int stopped = threads_of(child, threads);
    int alive = 0;
    for (int i = 0; i < stopped; i++) {
        // It may have ended since.
        if (ptrace(PTRACE_SEIZE, threads[i], 0, 0) || ptrace(PTRACE_INTERRUPT, threads[i], 0, 0))
            continue;
        int status;
        CHECK(waitpid(threads[i], &status, __WALL) == threads[i]);
        if (WIFSTOPPED(status))
            threads[alive++] = threads[i];
    }
    stopped = alive;
    sleep(6);
    for (int i = 0; i < stopped; i++) {
        OK(ptrace(PTRACE_DETACH, threads[i], 0, 0) != 0);
        usleep(i ? 0 : 500000);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
