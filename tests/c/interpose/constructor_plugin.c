// While this constructor holds the loader's lock, another thread makes the first call of a function
// that the library interposes; then this thread calls the same function, as $WAY says.
#include "../check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const char *way;
static pthread_t other;
static atomic_int number, done;

static void call(void) {
    struct sigaction action;
    if (strstr(way, "sigaction"))
        OK(sigaction(SIGUSR2, NULL, &action));
    else
        CHECK(signal(SIGUSR2, SIG_DFL) == SIG_DFL);
}

static void *call_first(void *unused) {
    number = syscall(SYS_gettid);
    call();
    done = 1;
    return unused;
}

static char state_of(int thread) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return '-';
    CHECK(fgets(text, sizeof text, file));
    fclose(file);
    return strrchr(text, ')')[2];
}

// Waits until the other thread has finished, or has been blocked for a while.
static void let_it_come_far(void) {
    for (int waits = 0; !done && waits < 50; usleep(1000))
        waits = number && state_of(number) == 'S' ? waits + 1 : 0;
}

static void in_a_child(void) {
    pid_t child = fork();
    if (!child) {
        call();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

__attribute__((constructor)) static void opened(void) {
    way = getenv("WAY");
    OK(pthread_create(&other, NULL, call_first, NULL));
    let_it_come_far();
    if (strstr(way, "fork"))
        in_a_child();
    else
        call();
    if (strstr(way, "join"))
        OK(pthread_join(other, NULL));
}

int finish(void) {
    if (!strstr(way, "join"))
        OK(pthread_join(other, NULL));
    puts("through");
    return 0;
}
