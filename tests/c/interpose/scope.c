// Look-ups whose result depends on the caller. Prints them; the output is the same with and without
// the library.
#include "../check.h"

static void missing(void *handle, const char *name) {
    dlerror();
    CHECK(!dlsym(handle, name));
    printf("error %s\n", dlerror());
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*look_around)(void) = dlsym(plugin, "look_around");
    CHECK(look_around);
    look_around();
    missing(plugin, "nowhere");
    missing(plugin, "cuNowhere");
    missing(RTLD_DEFAULT, "only_here");
    missing(RTLD_DEFAULT, "cuOnlyHere");
    missing(RTLD_NEXT, "cuNowhere");
    printf("main %s\n", file_of(dlsym(RTLD_DEFAULT, "cuInit")));
    return 0;
}
