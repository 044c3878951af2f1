// broken_stderr closed|pipe: uses the driver with a closed stderr, or with a pipe that nobody reads.
// If a file gets descriptor 2, it must contain only what the program writes to it.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <dlfcn.h>

int main(int argc, char **argv) {
    int ends[2];
    if (argc == 2 && !strcmp(argv[1], "pipe")) {
        if (pipe(ends) || dup2(ends[1], 2) != 2)
            return 2;
        close(ends[0]);
        close(ends[1]);
    } else {
        close(2);
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? dlsym(driver, "cuInit") : 0;
    int (*retain)(void **, int) = driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : 0;
    int (*set_current)(void *) = driver ? dlsym(driver, "cuCtxSetCurrent") : 0;
    int (*alloc)(uint64_t *, uint64_t) = driver ? dlsym(driver, "cuMemAlloc_v2") : 0;
    char name[] = "/tmp/broken_stderr_XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    void *context;
    uint64_t address;
    if (file < 0 || !alloc || init(0) || retain(&context, 0) || set_current(context) || alloc(&address, 4096))
        return 2;
    if (write(file, "data", 4) != 4)
        return 2;
    printf("descriptor %d, %ld bytes\n", file, (long)lseek(file, 0, SEEK_END));
    return 0;
}
