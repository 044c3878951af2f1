// Prints a line for every allocation and free of the process, as CuPy's DebugPrintHook does; one JSON object each, so
// that a script can read them.
//
//   gcc -O2 -shared -fPIC -I../../include -o debug_print.so debug_print.c
//   LD_PRELOAD=/path/to/libcachealloc.so CACHEALLOC_CONF=hook:$PWD/debug_print.so ./app
//
// Writes to stderr, or to the file that DEBUG_PRINT_FILE names. "malloc" and "free" are the program's calls; "alloc" is what
// the cache requested from the driver; "other" and "other_free" are pinned, managed and virtual memory, arrays and nodes of graphs.
#include "cachealloc.h"
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

__attribute__((constructor)) static void open_file(void) {
    const char *name = getenv("DEBUG_PRINT_FILE");
    out = name ? fopen(name, "w") : NULL;
    if (!out)
        out = stderr;
}

// One stdio call for each line: it locks the file, so the lines of several threads are not mixed.
static void alloc(void *data, int device_id, size_t mem_size, uint64_t mem_ptr) {
    (void)data;
    fprintf(out, "{\"hook\":\"alloc\",\"device_id\":%d,\"mem_size\":%zu,\"mem_ptr\":%llu}\n", device_id, mem_size,
            (unsigned long long)mem_ptr);
}

static void malloced(void *data, int device_id, size_t size, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)data;
    fprintf(out,
            "{\"hook\":\"malloc\",\"device_id\":%d,\"size\":%zu,\"mem_size\":%zu,\"mem_ptr\":%llu,\"pmem_id\":\"%#llx\"}\n",
            device_id, size, mem_size, (unsigned long long)mem_ptr, (unsigned long long)pmem_id);
}

static void freed(void *data, int device_id, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)data;
    fprintf(out, "{\"hook\":\"free\",\"device_id\":%d,\"mem_size\":%zu,\"mem_ptr\":%llu,\"pmem_id\":\"%#llx\"}\n",
            device_id, mem_size, (unsigned long long)mem_ptr, (unsigned long long)pmem_id);
}

static void print_other(const char *what, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id) {
    fprintf(out,
            "{\"hook\":\"%s\",\"device_id\":%d,\"kind\":%d,\"size\":%zu,\"mem_ptr\":%llu,\"pmem_id\":\"%#llx\"}\n", what,
            device_id, kind, size, (unsigned long long)mem_ptr, (unsigned long long)pmem_id);
}

static void other(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)data;
    print_other("other", device_id, kind, size, mem_ptr, pmem_id);
}

static void other_freed(void *data, int device_id, int kind, size_t size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)data;
    print_other("other_free", device_id, kind, size, mem_ptr, pmem_id);
}

const cachealloc_hook cachealloc_hook_table = {.size = sizeof(cachealloc_hook),
                                               .name = "debug_print",
                                               .alloc_postprocess = alloc,
                                               .malloc_postprocess = malloced,
                                               .free_postprocess = freed,
                                               .other_allocated = other,
                                               .other_freed = other_freed};
