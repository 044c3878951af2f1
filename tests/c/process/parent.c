// parent HOW COMMAND...: uses CUDA and starts the command meanwhile, by `fork` and `exec`, `posix_spawn` or
// `system`; its output and end are shown.
#include "../check.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int started(const char *how, char **command) {
    pid_t child;
    int status;
    if (!strcmp(how, "system"))
        return system(command[0]);
    if (!strcmp(how, "spawn"))
        OK(posix_spawn(&child, command[0], NULL, NULL, command, environ));
    else if (!(child = fork())) {
        if (!strcmp(how, "cleared"))
            clearenv();
        execv(command[0], command);
        _exit(126);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(int count, char **arguments) {
    CHECK(count > 2);
    start_cuda();
    loop(5);
    int status = started(arguments[1], arguments + 2);
    loop(5);
    if (WIFEXITED(status))
        printf("the child ended with %d\n", WEXITSTATUS(status));
    else
        printf("a signal ended the child: %d\n", WTERMSIG(status));
    return 0;
}
