// Preloaded with the library: opening a file takes long in the library's own thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open64(const char *path, int flags, ...) {
    static int (*_Atomic next)(const char *, int, ...);
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (!next)
        next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    if (!strncmp(path, "/dev/shm/cachealloc", 19) && syscall(SYS_gettid) != getpid())
        usleep(30000);
    return next(path, flags, mode);
}
