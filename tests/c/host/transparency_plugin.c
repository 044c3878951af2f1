// A plugin that allocates. With -DLINKED it is linked against the driver; otherwise it looks the
// functions up.
#include "../check.h"

#ifdef LINKED
int cuMemAlloc_v2(Pointer *, size_t);
int cuMemFree_v2(Pointer);
static void find(void) {
    cuMemAlloc = cuMemAlloc_v2;
    cuMemFree = cuMemFree_v2;
}
#else
static void find(void) {
    if (!cuMemAlloc)
        find_driver();
}
#endif

Pointer allocate(size_t bytes) {
    find();
    Pointer block;
    OK(cuMemAlloc(&block, bytes));
    return block;
}

int release(Pointer block) {
    find();
    return cuMemFree(block);
}

void work(int rounds) {
    find();
    loop(rounds);
}

const char *owner(void) {
    find();
    return file_of((void *)cuMemAlloc);
}

__attribute__((constructor)) static void opened(void) {
    if (getenv("ALLOCATE_IN_CONSTRUCTOR"))
        work(3);
}
__attribute__((destructor)) static void closed(void) {
    if (getenv("ALLOCATE_IN_CONSTRUCTOR"))
        work(3);
}
