// Checks that every version of these functions that callers may be linked against is the library's.
#include "../check.h"
#if defined(__x86_64__)
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver old_dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver old_dlmopen, dlmopen@GLIBC_2.3.4");
#else
__asm__(".symver old_dlsym, dlsym@GLIBC_2.17");
__asm__(".symver old_dlopen, dlopen@GLIBC_2.17");
__asm__(".symver old_dlmopen, dlmopen@GLIBC_2.17");
#endif
extern void *old_dlsym(void *, const char *);
extern void *old_dlopen(const char *, int);
extern void *old_dlmopen(Lmid_t, const char *, int);

static void say(const char *name, void *newer, void *older) {
    printf("%s: new in %s, old in %s\n", name, file_of(newer), file_of(older));
}

int main(void) {
    say("dlsym", (void *)dlsym, (void *)old_dlsym);
    say("dlopen", (void *)dlopen, (void *)old_dlopen);
    say("dlmopen", (void *)dlmopen, (void *)old_dlmopen);
    CHECK(old_dlsym(RTLD_DEFAULT, "puts") && dlsym(RTLD_DEFAULT, "puts"));
    CHECK(old_dlopen(NULL, RTLD_NOW) && dlopen(NULL, RTLD_NOW));
    CHECK(old_dlmopen(LM_ID_BASE, "libc.so.6", RTLD_NOW) && dlmopen(LM_ID_BASE, "libc.so.6", RTLD_NOW));
    return 0;
}
