// Looks for libraries next to itself, and prints what it finds: no other library finds
// `libbeside.so`.
#include "../check.h"

static void say(const char *how, void *library) {
    printf("%s: %s\n", how, library ? "found" : dlerror());
    if (library)
        OK(dlclose(library));
}

void open_beside(void) {
    static const char *const names[] = {"libbeside.so", "$ORIGIN/libbeside.so", "libnowhere.so"};
    static const int flags[] = {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW | RTLD_DEEPBIND, RTLD_LAZY, 0};
    for (int name = 0; name < 3; name++)
        for (int i = 0; i < 4; i++) {
            say(names[name], dlopen(names[name], flags[i]));
            say("in the base", dlmopen(LM_ID_BASE, names[name], flags[i]));
            say("apart", dlmopen(LM_ID_NEWLM, names[name], flags[i]));
        }
}
