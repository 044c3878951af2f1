// Opens libraries by names without a folder: which one is found depends on the caller.
#include "../check.h"

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int i = 0; i < 2; i++) {
        void *found = dlopen("libbeside.so", RTLD_NOW);
        printf("program: %s\n", found ? "found" : dlerror());
    }
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    void (*open_beside)(void) = plugin ? dlsym(plugin, "open_beside") : NULL;
    CHECK(open_beside);
    open_beside();
    printf("the program itself: %d\n", dlopen(NULL, RTLD_NOW | RTLD_DEEPBIND) != NULL);
    return 0;
}
