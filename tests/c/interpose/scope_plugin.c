// Opened with RTLD_LOCAL: look-ups here find names that no other library finds. The caller must be
// the true one; an interposed `dlsym` that calls the real one would be the wrong caller.
#include "../check.h"

int who(void) { return 1; }
int cuWho(void) { return 11; }
int only_here(void) { return 5; }
int cuOnlyHere(void) { return 55; }

static int call(void *place, const char *name) {
    int (*function)(void) = dlsym(place, name);
    return function ? function() : -1;
}

void look_around(void) {
    printf("next %d %d\n", call(RTLD_NEXT, "who"), call(RTLD_NEXT, "cuWho"));
    printf("default %d %d\n", call(RTLD_DEFAULT, "only_here"), call(RTLD_DEFAULT, "cuOnlyHere"));
    dlerror();
    call(RTLD_NEXT, "cuNowhere");
    printf("error %s\n", dlerror());
    call(RTLD_DEFAULT, "nowhere");
    printf("error %s\n", dlerror());
    printf("driver %s %s\n", file_of(dlsym(RTLD_DEFAULT, "cuInit")),
           file_of(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
}
