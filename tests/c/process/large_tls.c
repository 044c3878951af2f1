// large_tls: a program with KIB KiB of thread-local data, which the C library places on the stack of
// each thread.
#include "../check.h"

static __thread volatile char much[KIB << 10];

int main(void) {
    start_cuda();
    loop(20);
    Pointer kept;
    OK(cuMemAlloc(&kept, 3000000));
    much[sizeof much - 1] = 1;
    printf("%d\n", much[0] + much[sizeof much - 1]);
    return 3;
}
