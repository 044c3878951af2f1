// Calls a driver function that is unknown to the library, found in both ways: every argument
// arrives, in registers and on the stack.
#include "../check.h"

typedef int Future(long, int, short, signed char, void *, unsigned, long, int, char *, double, double,
                   double, double, double, double, double, double);

static void call(Future *future) {
    CHECK(future);
    CHECK(future(-1, -2, -3, -4, (void *)5, 6, 7, -8, "nine", 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5) == 77);
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    Future *future = (Future *)dlsym(driver, "cuFutureCall");
    call(future);
    call(future);
    int (*resolve)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
    void *found;
    int status;
    OK(resolve("cuFutureCall", &found, 99000, 0, &status));
    CHECK(!status && found == (void *)future);
    call(found);
    printf("in %s\n", file_of(found));
    return 0;
}
