// A tool between a library and the driver: it launches for others.
#include "communication.h"

int launch(void *kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
           void *stream, void **arguments, void **extra) {
    if (!cuLaunchKernel)
        find_functions();
    return cuLaunchKernel(kernel, x, y, z, bx, by, bz, shared, stream, arguments, extra);
}
