// Imitates tools that intercept frees in an unmodified program (UCX): they overwrite the first
// instructions of a driver function with a jump, and move those elsewhere. Reports for each function
// in the given file whether the result of `dlsym` can be patched in this way; then patches one.
#include "../check.h"
#include <sys/mman.h>

#ifdef __x86_64__
#define LONGEST_JUMP 13
// The length of an instruction that they can move, or 0. UCX knows a few more; these are in all its
// versions.
static unsigned movable(const unsigned char *code) {
    static const unsigned char frame[] = {0x48, 0x89, 0xe5}, room[] = {0x48, 0x81, 0xec};
    if (code[0] >= 0x50 && code[0] <= 0x57)
        return 1;
    if (code[0] == 0x41 && code[1] >= 0x50 && code[1] <= 0x57)
        return 2;
    if (!memcmp(code, frame, 3))
        return 3;
    return memcmp(code, room, 3) ? 0 : 7;
}
static unsigned jump(unsigned char *at, const void *to) {
    memcpy(at, "\x49\xbb", 2); // mov r11, to
    memcpy(at + 2, &to, 8);
    memcpy(at + 10, "\x41\xff\xe3", 3); // jmp r11
    return 13;
}
#else
#define LONGEST_JUMP 16
static unsigned movable(const unsigned char *code) {
    unsigned word;
    memcpy(&word, code, 4);
    int is_move = (word & 0x7fe0ffe0) == 0x2a0003e0, is_load = (word & 0xbfc00000) == 0xb9400000;
    int is_page = (word & 0x9f000000) == 0x90000000;
    return is_move || is_load || is_page ? 4 : 0;
}
static unsigned jump(unsigned char *at, const void *to) {
    static const unsigned load_and_branch[] = {0x5800004f, 0xd61f01e0}; // ldr x15, 8; br x15
    memcpy(at, load_and_branch, 8);
    memcpy(at + 8, &to, 8);
    return 16;
}
#endif

static unsigned length(const unsigned char *code) {
    unsigned moved = 0, size;
    while (moved < LONGEST_JUMP && (size = movable(code + moved)))
        moved += size;
    return moved < LONGEST_JUMP ? 0 : moved;
}

static int frees;
static int (*original)(Pointer);
static int counted(Pointer pointer) {
    frees++;
    return original(pointer);
}

#ifdef __x86_64__
static void patch(unsigned char *code) {
    unsigned moved = length(code);
    unsigned char *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(moved && copy != MAP_FAILED);
    memcpy(copy, code, moved);
    jump(copy + moved, code + moved);
    original = (int (*)(Pointer))copy;
    unsigned char *page = (unsigned char *)((uintptr_t)code & ~4095ul);
    OK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC));
    jump(code, (void *)counted);
}
#endif

int main(int count, char **arguments) {
    CHECK(count == 2);
    FILE *names = fopen(arguments[1], "r");
    CHECK(names);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    char name[200];
    int seen = 0, bad = 0;
    while (fscanf(names, "%199s", name) == 1) {
        const unsigned char *code = strncmp(name, "cu", 2) ? NULL : dlsym(driver, name);
        if (!code)
            continue;
        seen++;
        if (!length(code)) {
            bad++;
            printf("%s cannot be patched\n", name);
        }
    }
    CHECK(seen);
    printf("all can be patched: %d\n", !bad);
#ifdef __x86_64__
    start_cuda();
    patch((unsigned char *)cuMemFree);
    int (*resolve)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
    void *found;
    int status;
    OK(resolve("cuMemFree", &found, 3020, 0, &status));
    for (int i = 0; i < 10; i++) {
        Pointer pointer;
        OK(cuMemAlloc(&pointer, 1000));
        OK((i % 2 ? cuMemFree : (int (*)(Pointer))found)(pointer));
    }
    printf("%d frees seen\n", frees);
#endif
    return bad != 0;
}
