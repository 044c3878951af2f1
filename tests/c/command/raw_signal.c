// raw_signal: replaces the handler of the snapshot signal by a raw system call, so that the signal
// would end the program.
#include "../check.h"
#include <signal.h>
#include <sys/syscall.h>

int main(void) {
    find_driver();
    start_cuda();
    loop(1);
    // The kernel's own structure; all zero is the default action.
    unsigned long action[4] = {0};
    // A thread of the library takes the signal, a moment after the first call.
    for (int i = 0; i < 500 && !action[0]; i++) {
        usleep(10000);
        OK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, action, 8));
    }
    memset(action, 0, sizeof action);
    OK(syscall(SYS_rt_sigaction, SIGUSR1, action, NULL, 8));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
