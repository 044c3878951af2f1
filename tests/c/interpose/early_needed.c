// A library that the program needs: its constructor runs before that of a preloaded library.
#include "../check.h"

void *early_puts, *early_driver;

__attribute__((constructor)) static void early(void) {
    early_puts = dlsym(RTLD_DEFAULT, "puts");
    early_driver = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
}
