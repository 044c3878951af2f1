// request_at_end: an exit handler requests more memory than there is, and prints the code.
#include "../check.h"

static void handler(void) {
    Pointer more;
    printf("code %d\n", cuMemAlloc(&more, 600 << 20));
}

int main(void) {
    Pointer most;
    atexit(handler);
    start_cuda();
    OK(cuMemAlloc(&most, 700 << 20));
    return 0;
}
