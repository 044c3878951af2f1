// Look-ups before any constructor, in the constructor of a needed library, and in the program's
// own.
#include "../check.h"
#include <signal.h>

static void *first_puts, *first_driver, *own_puts;

static void before_all(void) {
    struct sigaction action;
    sigaction(SIGTERM, NULL, &action);
    signal(SIGTERM, SIG_DFL);
    first_puts = dlsym(RTLD_DEFAULT, "puts");
    first_driver = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
}
__attribute__((section(".preinit_array"), used)) static void (*entry)(void) = before_all;

__attribute__((constructor)) static void constructor(void) {
    own_puts = dlsym(RTLD_DEFAULT, "puts");
}

int main(int count, char **arguments) {
    CHECK(getenv("PATH")); // the C library has begun once, with its environment
    CHECK(first_puts == (void *)dlsym(RTLD_DEFAULT, "puts") && own_puts == first_puts);
    CHECK(!first_driver);
    if (count > 1) {
        void *needed = dlopen(arguments[1], RTLD_NOW);
        CHECK(needed);
        CHECK(*(void **)dlsym(needed, "early_puts") == first_puts);
        CHECK(!*(void **)dlsym(needed, "early_driver"));
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver)
        printf("cuInit is in %s\n", file_of(dlsym(driver, "cuInit")));
    puts("early");
    return 0;
}
