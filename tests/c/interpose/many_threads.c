// Threads that look functions up while one of them loads the driver: all get the same pointers.
#include "../check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 2000 };
static void *seen[THREADS][3];

static void *work(void *argument) {
    void **mine = argument;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    static const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuCtxGetId"};
    for (int i = 0; i < 3; i++)
        mine[i] = dlsym(driver, names[i]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++)
            CHECK(mine[i] && dlsym(driver, names[i]) == mine[i]);
        CHECK(dlsym(RTLD_DEFAULT, "puts") && !dlsym(driver, "cuNowhere"));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, work, seen[i]));
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    for (int i = 1; i < THREADS; i++)
        CHECK(!memcmp(seen[0], seen[i], sizeof seen[0]));
    printf("%s %s %s\n", file_of(seen[0][0]), file_of(seen[0][1]), file_of(seen[0][2]));
    return 0;
}
