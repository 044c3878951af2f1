// header: uses every function of include/cachealloc.h, with its signature, as a program does that
// runs with or without the library: by weak symbols, and by dlsym. Prints which exist, and what they
// return.
#include "../check.h"
#include "../../../include/cachealloc.h"
#include <errno.h>

#define SAME(name, result, ...)                                                     \
    do {                                                                            \
        result (*by_symbol)(__VA_ARGS__) = name;                                    \
        CHECK((void *)by_symbol == dlsym(RTLD_DEFAULT, #name));                     \
        printf("%s %s\n", #name, by_symbol ? "there" : "not there");                \
    } while (0)

int main(int count, char **arguments) {
    Pointer a;
    SAME(cachealloc_version, const char *, void);
    SAME(cachealloc_snapshot, int, const char *);
    SAME(cachealloc_record, int, const char *);
    SAME(cachealloc_record_memory_history, int, const char *, const char *, const char *, uint64_t, int, int);
    SAME(cachealloc_range_push, int, const char *);
    SAME(cachealloc_range_pop, void, void);
    SAME(cachealloc_trim, int64_t, int);
    SAME(cachealloc_set_limit, int, int, uint64_t);
    SAME(cachealloc_record_stream, int, uint64_t, void *);
    SAME(cachealloc_stat, int, int, const char *, int64_t *);
    SAME(cachealloc_stats, size_t, char *, size_t);
    SAME(cachealloc_reset_peak_stats, int, int);
    SAME(cachealloc_reset_accumulated_stats, int, int);
    SAME(cachealloc_hook_push, int, const cachealloc_hook *);
    SAME(cachealloc_hook_pop, int, const cachealloc_hook *);
    if (!cachealloc_version)
        return 0;
    puts(cachealloc_version());
    // Before CUDA there is nothing to release and nothing to record.
    printf("%lld %d %d\n", (long long)cachealloc_trim(-1), cachealloc_record_stream(4096, NULL),
           cachealloc_set_limit(0, 1 << 20));
    printf("%d %d\n", cachealloc_record_memory_history("on", NULL, NULL, 1, -1, 0),
           cachealloc_record_memory_history(NULL, NULL, NULL, 1, 7, 0));
    start_cuda();
    OK(cuMemAlloc(&a, 30 << 20));
    printf("%lld\n", (long long)cachealloc_trim(0));
    OK(cuMemFree(a));
    printf("%lld %lld\n", (long long)cachealloc_trim(1), (long long)cachealloc_trim(0));
    OK(cuMemAlloc(&a, 1000));
    printf("%d %d %d\n", cachealloc_record_stream(a, NULL), cachealloc_record_stream(a + 8, NULL),
           cachealloc_record_stream(a, (void *)12345) != 0);
    OK(cuMemFree(a));
    printf("%d %d\n", cachealloc_set_limit(0, 40 << 20), cachealloc_set_limit(9, 0));
    printf("%d", cuMemAlloc(&a, 50 << 20));
    cachealloc_set_limit(0, 0);
    printf(" %d\n", cuMemAlloc(&a, 50 << 20));
    return 0;
}
