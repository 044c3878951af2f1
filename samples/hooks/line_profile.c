// Prints at the end which lines of a program took how much GPU memory, as CuPy's LineProfileHook does.
//
//   gcc -O2 -shared -fPIC -I../../include -o line_profile.so line_profile.c -ldl -lpthread
//   LD_PRELOAD=/path/to/libcachealloc.so CACHEALLOC_CONF=hook:$PWD/line_profile.so ./app
//
//      used  acquired  where
//    300 MiB    30 MiB  main+0x1c4 (./app+0x13a4)
//
// used: total bytes that the program allocated there; acquired: bytes that the cache requested from the driver for it. Each
// function up the stack counts its own bytes and those of its callees. `addr2line -e FILE OFFSET` prints the line. Writes to
// stderr, or to the file that LINE_PROFILE_FILE names.
#define _GNU_SOURCE
#include "cachealloc.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES_MAX = 64, LINES_MAX = 4096 };

struct line {
    void *address;
    size_t used, acquired;
};

static struct line lines[LINES_MAX]; // open addressing; a full table loses lines, not the program
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct line *line_of(void *address) {
    size_t slot = (size_t)address * 0x9E3779B97F4A7C15u >> 52;
    for (int tries = 0; tries < LINES_MAX; tries++, slot = (slot + 1) % LINES_MAX)
        if (!lines[slot].address || lines[slot].address == address)
            return &lines[slot];
    return NULL;
}

// Frames of the allocator and of this file do not belong to the program.
static int is_ours(void *address) {
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname &&
           (strstr(info.dli_fname, "libcachealloc.so") || strstr(info.dli_fname, "line_profile.so"));
}

static void note(size_t used, size_t acquired) {
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        int again = 0; // recursion: a line counts once
        for (int k = 0; k < i && !again; k++)
            again = frames[k] == frames[i];
        struct line *line = again || is_ours(frames[i]) ? NULL : line_of(frames[i]);
        if (line) {
            line->address = frames[i];
            line->used += used;
            line->acquired += acquired;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void alloc(void *data, int device_id, size_t mem_size, uint64_t mem_ptr) {
    (void)data, (void)device_id;
    if (mem_ptr)
        note(0, mem_size);
}

static void malloced(void *data, int device_id, size_t size, size_t mem_size, uint64_t mem_ptr, uint64_t pmem_id) {
    (void)data, (void)device_id, (void)size, (void)pmem_id;
    if (mem_ptr)
        note(mem_size, 0);
}

const cachealloc_hook cachealloc_hook_table = {.size = sizeof(cachealloc_hook),
                                               .name = "line_profile",
                                               .alloc_postprocess = alloc,
                                               .malloc_postprocess = malloced};

static int by_use(const void *left, const void *right) {
    size_t a = ((const struct line *)left)->used, b = ((const struct line *)right)->used;
    return (a < b) - (a > b);
}

static void print_bytes(FILE *out, size_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 10240 && unit < 4; unit++)
        bytes >>= 10;
    fprintf(out, "%6zu %-3s ", bytes, units[unit]);
}

__attribute__((destructor)) static void print(void) {
    const char *name = getenv("LINE_PROFILE_FILE");
    FILE *out = name ? fopen(name, "w") : stderr;
    pthread_mutex_lock(&lock);
    qsort(lines, LINES_MAX, sizeof *lines, by_use);
    if (out)
        fprintf(out, "    used    acquired  where\n");
    for (int i = 0; out && i < LINES_MAX && lines[i].used; i++) {
        Dl_info info = {0};
        void *call = (char *)lines[i].address - 1; // into the call, not past it
        print_bytes(out, lines[i].used);
        print_bytes(out, lines[i].acquired);
        if (!dladdr(call, &info) || !info.dli_fname)
            fprintf(out, " %p\n", call);
        else
            fprintf(out, " %s (%s+%#lx)\n", info.dli_sname ? info.dli_sname : "?", info.dli_fname,
                    (unsigned long)((char *)call - (char *)info.dli_fbase));
    }
    pthread_mutex_unlock(&lock);
    if (out && out != stderr)
        fclose(out);
}
