// Starts Python from the given library while CUDA is running. Allocates in a Python function; with
// a number, in a recursion of that depth. With `native` and a number, in a recursion of that depth
// in C.
#include "../check.h"

static int allocate(void) {
    Pointer pointer;
    return cuMemAlloc(&pointer, 3 << 20);
}

__attribute__((noinline)) static int deeper(int levels) {
    int code = levels ? deeper(levels - 1) : allocate();
    __asm__ volatile("" ::: "memory"); // the call is no jump
    return code;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    start_cuda();
    OK(allocate());
    if (!strcmp(arguments[1], "native")) {
        OK(deeper(atoi(arguments[2])));
        return 0;
    }
    void *python = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(python);
    void (*initialize)(void) = (void (*)(void))dlsym(python, "Py_Initialize");
    int (*run)(const char *) = (int (*)(const char *))dlsym(python, "PyRun_SimpleString");
    CHECK(initialize && run);
    initialize();
    char text[400];
    snprintf(text, sizeof text,
             "import ctypes\n"
             "allocate = ctypes.CFUNCTYPE(ctypes.c_int)(%lld)\n"
             "def in_python(levels):\n"
             "    return in_python(levels - 1) if levels else allocate()\n"
             "assert in_python(%d) == 0\n",
             (long long)(intptr_t)allocate, atoi(arguments[2]));
    OK(run(text));
    return 0;
}
