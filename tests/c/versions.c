// Both versions of `dlsym` that callers may be linked against must be ours.
#include "check.h"
#if defined(__x86_64__)
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#else
__asm__(".symver old_dlsym, dlsym@GLIBC_2.17");
#endif
extern void *old_dlsym(void *, const char *);

int main(void) {
    void *new = (void *)dlsym, *old = (void *)old_dlsym;
    printf("new in %s\nold in %s\n", file_of(new), file_of(old));
    CHECK(old_dlsym(RTLD_DEFAULT, "puts") && dlsym(RTLD_DEFAULT, "puts"));
    return 0;
}
