// The host has no memory for large tables: requests that cannot be served are refused, and the
// process survives.
#include "check.h"
#include <sys/resource.h>

#define BLOCKS 100000
#define PIECES 2000

static Pointer blocks[BLOCKS];
static void *pieces[PIECES];

// From here on `malloc` has small pieces only.
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

int main(void) {
    start_cuda();
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
