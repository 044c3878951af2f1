// Changes its environment and its working folder before it starts CUDA.
#include "../check.h"

int main(void) {
    CHECK(!clearenv());
    OK(chdir("/"));
    start_cuda();
    loop(10);
    printf("served by %s\n", file_of((void *)cuMemAlloc));
    return 0;
}
