// A program without any C library, for whatever machine the compiler targets: prints that, and ends
// with 7.
#ifdef __i386__
static int call(int number, int first, long second, int third) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
    return result;
}
enum { WRITE = 4, EXIT = 1 };
#else
#error "for 32 bits"
#endif

void _start(void) {
    call(WRITE, 1, (long)"32 bits\n", 8);
    call(EXIT, 7, 0, 0);
}
