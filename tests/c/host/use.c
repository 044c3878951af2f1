// The smallest CUDA program: a loop of allocations. Prints which library serves them.
#include "../check.h"

int main(int count, char **arguments) {
    start_cuda();
    loop(count > 1 ? atoi(arguments[1]) : 100);
    OK(cuCtxSynchronize());
    printf("served by %s\n", file_of((void *)cuMemAlloc));
    return 0;
}
