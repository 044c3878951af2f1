// Preloaded behind the library: hands out the C library's own `dlopen`, which nobody stands in front of.
#define _GNU_SOURCE
#include <dlfcn.h>

void *next_dlopen(void) { return dlsym(RTLD_NEXT, "dlopen"); }
