// A plugin that uses CUDA by itself, and is closed again.
#include "../check.h"

void work(void) {
    start_cuda();
    loop(20);
}
