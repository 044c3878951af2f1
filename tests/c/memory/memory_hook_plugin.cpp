// A memory hook of the whole process. Counts its calls; the callback that HOOK_THROWS names throws.
#include "../../../include/cachealloc.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

static std::atomic<int> heard[6];

static void hear(int which, const char *name) {
    heard[which]++;
    const char *throws = getenv("HOOK_THROWS");
    if (throws && !strcmp(throws, name))
        throw std::runtime_error(std::string("thrown by ") + name);
}

static void alloc_pre(void *, int, size_t) { hear(0, "alloc_preprocess"); }
static void alloc_post(void *, int, size_t, uint64_t) { hear(1, "alloc_postprocess"); }
static void malloc_pre(void *, int, size_t, size_t) { hear(2, "malloc_preprocess"); }
static void malloc_post(void *, int, size_t, size_t, uint64_t, uint64_t) { hear(3, "malloc_postprocess"); }
static void free_pre(void *, int, size_t, uint64_t, uint64_t) { hear(4, "free_preprocess"); }
static void free_post(void *, int, size_t, uint64_t, uint64_t) { hear(5, "free_postprocess"); }

const cachealloc_hook cachealloc_hook_table = {
#ifdef FROM_ANOTHER_VERSION
    8,
#else
    sizeof(cachealloc_hook),
#endif
    "counts", nullptr, alloc_pre, alloc_post, malloc_pre, malloc_post, free_pre, free_post};

__attribute__((destructor)) static void at_end() {
    printf("heard");
    for (auto &count : heard)
        printf(" %d", count.load());
    printf(", %d exceptions in flight\n", std::uncaught_exceptions());
    fflush(stdout);
}
