// A program whose plugin submits work by itself: deep WAY HOW PLUGIN. HOW tells how the plugin is
// opened.
#include "../check.h"

enum { BYTES = 1 << 20, ROUNDS = 5 };

static void *streams[2];
static int (*cuMemsetD8Async)(Pointer, unsigned char, size_t, void *);
static int (*cuMemAllocHost)(void **, size_t);

static void start(void) {
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(driver, "cuStreamCreate");
    *(void **)&cuMemsetD8Async = dlsym(driver, "cuMemsetD8Async");
    *(void **)&cuMemAllocHost = dlsym(driver, "cuMemAllocHost_v2");
    for (int i = 0; i < 2; i++)
        OK(create(&streams[i], 1));
}

// The C library's own `dlopen`, which nothing interposes.
static void *open_past_all(const char *path, int flags) {
    const char *files[] = {"libc.so.6", "libdl.so.2"};
    for (int i = 0; i < 2; i++) {
        void *(*open)(const char *, int) = dlsym(dlopen(files[i], RTLD_NOW), "dlopen");
        if (open)
            return open(path, flags);
    }
    return NULL;
}

static void *open_so(const char *how, const char *path) {
    int deep = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    void *plugin = NULL;
    if (!strcmp(how, "deep") || !strcmp(how, "early"))
        plugin = dlopen(path, deep) ? dlopen(path, deep) : NULL;
    if (!strcmp(how, "base"))
        plugin = dlmopen(LM_ID_BASE, path, deep);
    if (!strcmp(how, "past"))
        plugin = open_past_all(path, deep);
    if (!strcmp(how, "ordinarily"))
        plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!strcmp(how, "again"))
        plugin = dlopen(path, RTLD_NOW) ? dlopen(path, deep | RTLD_NOLOAD) : NULL;
    if (!strcmp(how, "itself"))
        plugin = dlopen(NULL, deep);
    if (!strcmp(how, "apart"))
        plugin = dlmopen(LM_ID_NEWLM, path, deep);
    if (!plugin) {
        fprintf(stderr, "%s: %s\n", how, dlerror());
        _exit(1);
    }
    return plugin;
}

static void *find(void *plugin, const char *name) {
    void *found = dlsym(plugin, name);
    CHECK(found);
    return found;
}

// The plugin fills a block; the program frees it, and fills the next block on another stream.
static void used_again(void *plugin) {
    void (*fill)(Pointer, size_t, void *) = find(plugin, "fill");
    for (int i = 0; i < ROUNDS; i++) {
        Pointer block, next;
        OK(cuMemAlloc(&block, BYTES));
        fill(block, BYTES, streams[0]);
        OK(cuMemFree(block));
        OK(cuMemAlloc(&next, BYTES));
        OK(cuMemsetD8Async(next, 1, BYTES, streams[1]));
        OK(cuMemFree(next));
    }
}

// The plugin copies a block to pinned memory; the program frees the block and reads that memory.
static void looked_at(void *plugin) {
    void (*copy_out)(void *, Pointer, size_t, void *) = find(plugin, "copy_out");
    Pointer block;
    char *pinned;
    OK(cuMemAllocHost((void **)&pinned, BYTES));
    OK(cuMemAlloc(&block, BYTES));
    OK(cuMemsetD8(block, 7, BYTES));
    OK(cuCtxSynchronize());
    OK(cuMemFree(block));
    for (int i = 0; i < ROUNDS; i++) {
        memset(pinned, 0, BYTES);
        OK(cuMemAlloc(&block, BYTES));
        OK(cuMemsetD8(block, 7, BYTES));
        copy_out(pinned, block, BYTES, streams[0]);
        OK(cuMemFree(block));
        printf("%d", ((volatile char *)pinned)[BYTES - 1]);
    }
    puts("");
}

// The plugin frees a block of the program, which is a whole segment, by calling the driver itself.
static void given_back(void *plugin) {
    int (*give_back)(Pointer) = find(plugin, "give_back");
    enum { LARGE = 12 << 20, COUNT = 4 };
    Pointer before[COUNT], after[COUNT];
    for (int i = 0; i < COUNT; i++)
        OK(cuMemAlloc(&before[i], LARGE));
    int code = give_back(before[0]);
    printf("freed by the plugin: %d\n", code);
    for (int i = 0; i < COUNT; i++) {
        OK(cuMemAlloc(&after[i], LARGE));
        OK(cuMemsetD8(after[i], 1, LARGE));
    }
    for (int i = 0; i < COUNT; i++) {
        if (i > 0 || code)
            OK(cuMemFree(before[i]));
        OK(cuMemFree(after[i]));
    }
}

// The plugin and its driver are in a separate namespace.
static void apart(void *plugin) {
    int (*work_alone)(int) = find(plugin, "work_alone");
    for (int i = 0; i < ROUNDS; i++) {
        loop(5);
        OK(work_alone(5));
    }
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    const char *way = arguments[1], *how = arguments[2], *path = arguments[3];
    int early = !strcmp(how, "early");
    void *plugin = early ? open_so(how, path) : NULL;
    if (strcmp(way, "without_cuda"))
        start();
    if (!early)
        plugin = open_so(how, path);
    if (!strcmp(way, "used_again"))
        used_again(plugin);
    if (!strcmp(way, "looked_at"))
        looked_at(plugin);
    if (!strcmp(way, "apart"))
        apart(plugin);
    if (!strcmp(way, "given_back"))
        given_back(plugin);
    puts("done");
    return 0;
}
