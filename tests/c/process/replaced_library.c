// One source, two builds: at the address of the function that a caller finds, the other build has a
// different one.
typedef unsigned long long Pointer;

#ifdef OTHER
#define FIRST(name) other_##name
#else
#define FIRST(name) name
#endif

__attribute__((noinline)) void FIRST(allocate_here)(int (*allocate)(Pointer *, unsigned long)) {
    Pointer kept;
    for (int i = 0; i < 3; i++)
        allocate(&kept, 3000);
    __asm__ volatile("");
}

void call_back(int (*allocate)(Pointer *, unsigned long)) {
    FIRST(allocate_here)(allocate);
    __asm__ volatile("");
}
