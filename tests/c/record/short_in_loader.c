// short_in_loader: memory runs out in a function that the loader calls while holding its lock, which
// a snapshot needs for names.
#include "../check.h"
#include <link.h>

static int ask(struct dl_phdr_info *info, size_t bytes, void *place) {
    Pointer none;
    (void)info, (void)bytes;
    *(int *)place = cuMemAlloc(&none, (size_t)1 << 45);
    return 1;
}

int main(void) {
    int code = -1;
    start_cuda();
    loop(3);
    dl_iterate_phdr(ask, &code);
    printf("answered %d\n", code);
    return 0;
}
