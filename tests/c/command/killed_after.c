// Allocates, and is ended by a signal that cannot be handled, or by a fault.
#include "../check.h"
#include <signal.h>

int main(int count, char **arguments) {
    start_cuda();
    for (int i = 0; i < 5; i++) {
        Pointer pointer;
        OK(cuMemAlloc(&pointer, 10 << 20));
    }
    if (count > 1 && !strcmp(arguments[1], "KILL"))
        kill(getpid(), SIGKILL);
    *(volatile int *)0 = 1;
    return 0;
}
