// Tests whether the global scope contains a driver: argument none, local, global.
#include "../check.h"

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (strcmp(arguments[1], "none"))
        CHECK(dlopen("libcuda.so.1", RTLD_NOW | (strcmp(arguments[1], "global") ? RTLD_LOCAL : RTLD_GLOBAL)));
    dlerror();
    void *found = dlsym(RTLD_DEFAULT, "cuInit");
    printf("%s %s\n", file_of(found), dlerror() ? "error" : "no error");
    void *allocate = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    printf("%s\n", file_of(allocate));
    return 0;
}
