// The host has no memory for large tables: requests that cannot be served are refused, and the
// process survives. With an argument, requests of many threads fail then.
#include "../check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#define BLOCKS 100000
#define PIECES 2000

static Pointer blocks[BLOCKS];
static void *pieces[PIECES];

// From here on `malloc` gets only small pieces.
static struct rlimit eat(void) {
    struct rlimit before, now;
    long pages = 0;
    for (int i = 0; i < PIECES; i++)
        pieces[i] = malloc(16 << 10);
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld", &pages) == 1);
    fclose(statm);
    CHECK(!getrlimit(RLIMIT_AS, &before));
    now = before;
    now.rlim_cur = pages * 4096;
    CHECK(!setrlimit(RLIMIT_AS, &now));
    for (size_t bytes = 1 << 20; bytes >= 16 << 10; bytes /= 2)
        while (malloc(bytes)) {}
    for (int i = 0; i < PIECES; i += 2)
        free(pieces[i]);
    return before;
}

#define THREADS 400

static pthread_barrier_t barrier;

static void *fail(void *context) {
    Pointer block;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&block, 512));
    OK(cuMemFree(block));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(cuMemAlloc(&block, (size_t)1 << 40) == 2);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

// The library reports on failed requests whether or not anything is recorded.
static int failures_of_many_threads(void) {
    static pthread_t threads[THREADS];
    void *context;
    int (*current)(void **) = (int (*)(void **))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent");
    pthread_attr_t small;
    CHECK(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, 256 << 10));
    CHECK(current);
    OK(current(&context));
    CHECK(!pthread_barrier_init(&barrier, NULL, THREADS + 1));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], &small, fail, context));
    pthread_barrier_wait(&barrier);
    struct rlimit before = eat();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(!setrlimit(RLIMIT_AS, &before));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    printf("%d threads failed\n", THREADS);
    return 0;
}

int main(int count, char **arguments) {
    (void)arguments;
    // Other arenas have address space that they may still use.
    CHECK(mallopt(M_ARENA_MAX, 1));
    start_cuda();
    if (count > 1)
        return failures_of_many_threads();
    OK(cuMemAlloc(&blocks[0], 512));
    OK(cuMemFree(blocks[0]));
    struct rlimit before = eat();
    int served = 0, code = 0;
    while (served < BLOCKS && !(code = cuMemAlloc(&blocks[served], 512)))
        served++;
    CHECK(!setrlimit(RLIMIT_AS, &before));
    CHECK(served > 1000 && (code == 0 || code == 2));
    int more = served;
    while (more < BLOCKS && !cuMemAlloc(&blocks[more], 512))
        more++;
    for (int i = 0; i < more; i++)
        OK(cuMemFree(blocks[i]));
    printf("%s, then %d\n", served < BLOCKS ? "some" : "all", more);
    return 0;
}
