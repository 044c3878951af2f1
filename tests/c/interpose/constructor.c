// Opens a library whose constructor behaves as chosen (constructor_plugin.c).
#include "../check.h"

extern void *next_dlopen(void) __attribute__((weak));

int main(int count, char **arguments) {
    CHECK(count == 2);
    void *(*open)(const char *, int) = dlopen;
    if (next_dlopen)
        open = (void *(*)(const char *, int))next_dlopen();
    void *plugin = open(arguments[1], RTLD_NOW);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*finish)(void) = (int (*)(void))dlsym(plugin, "finish");
    CHECK(finish);
    return finish();
}
