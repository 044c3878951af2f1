// full_pipe WAY: a process whose stderr is a full pipe that its parent does not read.
// It writes nothing to it, so it must end without delay.
#include "../check.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static void fill(int end) {
    char bytes[4096] = "";
    OK(fcntl(end, F_SETFL, O_NONBLOCK));
    while (write(end, bytes, sizeof bytes) > 0)
        ;
    CHECK(errno == EAGAIN);
    OK(fcntl(end, F_SETFL, 0));
}

static int child(const char *way, int end) {
    Pointer kept;
    CHECK(dup2(end, 2) == 2);
    start_cuda();
    loop(20);
    OK(cuMemAlloc(&kept, 1000));
    fill(2);
    if (!strcmp(way, "raise"))
        raise(SIGTERM);
    if (!strcmp(way, "shortage"))
        for (int i = 0; i < 5; i++)
            if (cuMemAlloc(&kept, (size_t)1 << 45) != 2)
                return 1;
    return 3;
}

int main(int count, char **arguments) {
    int ends[2], status;
    CHECK(count == 2 && !pipe(ends));
    pid_t process = fork();
    if (!process)
        exit(child(arguments[1], ends[1]));
    for (int i = 0; i < 2000; i++) {
        if (waitpid(process, &status, WNOHANG) == process) {
            printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
            return 0;
        }
        usleep(10000);
    }
    puts("goes on for 20 s");
    return kill(process, SIGKILL);
}
