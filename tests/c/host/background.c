// background: a background job on a terminal that stops every background job that writes to it.
// The job itself writes nothing.
#include "../check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>

// Requests more memory than there is, after which a program may continue.
static int job(void) {
    OK(setpgid(0, 0));
    start_cuda();
    loop(3);
    Pointer none;
    CHECK(cuMemAlloc(&none, (size_t)1 << 45) == 2);
    return 3;
}

// Acts as the shell of the terminal.
static int shell(const char *terminal) {
    CHECK(setsid() > 0);
    int file = open(terminal, O_RDWR);
    struct termios settings;
    CHECK(file >= 0 && dup2(file, 2) == 2);
    OK(tcgetattr(2, &settings));
    settings.c_lflag |= TOSTOP;
    OK(tcsetattr(2, TCSANOW, &settings));
    pid_t child = fork();
    if (!child)
        exit(job());
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    if (WIFSTOPPED(status)) {
        printf("stopped by signal %d\n", WSTOPSIG(status));
        kill(child, SIGKILL);
    } else {
        printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    return 0;
}

int main(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && !grantpt(master) && !unlockpt(master));
    pid_t child = fork();
    if (!child)
        exit(shell(ptsname(master)));
    char said[4096];
    for (ssize_t bytes; (bytes = read(master, said, sizeof said)) > 0;)
        fwrite(said, 1, bytes, stderr);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}
