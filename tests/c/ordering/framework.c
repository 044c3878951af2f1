// A program with a framework: `framework LIBRARY PROGRAM`. The framework's kernel receives the
// address of pinned memory.
#include "communication.h"

static void (*start)(void);
static void (*by_table)(void *stream, Pointer at, Word value);
static void (*by_address)(void *stream, Pointer at, Word value);
static int (*cuMemcpyHtoD)(Pointer, const void *, size_t);

static void *stream, *delay, *indirect;
static volatile Word *pinned;

static void load(const char *library) {
    void *opened = dlopen(library, RTLD_NOW), *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(opened);
    *(void **)&start = dlsym(opened, "start");
    *(void **)&by_table = dlsym(opened, "by_table");
    *(void **)&by_address = dlsym(opened, "by_address");
    *(void **)&cuMemcpyHtoD = dlsym(driver, "cuMemcpyHtoD_v2");
    CHECK(start && by_table && by_address && cuMemcpyHtoD);
}

static void host_finds(Word value) {
    sim_host_read((Word)pinned, 8);
    CHECK(*pinned == value);
}

static void free_something(void) {
    Pointer block;
    OK(cuMemAlloc(&block, 1 << 20));
    OK(cuMemFree(block));
}

// What the framework's kernel writes is there when a later free has returned; a free after other
// kernels has nothing to wait for.
static void once(void) {
    by_table(stream, (Pointer)pinned, 7);
    free_something();
    host_finds(7);
    for (int i = 0; i < 20; i++) {
        Word ns = 1000;
        void *arguments[] = {&ns};
        OK(cuLaunchKernel(delay, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
        free_something();
    }
}

// The program's kernel finds the address in memory, where the framework's kernel may have stored
// it.
static void kept_by(void (*handed)(void *, Pointer, Word)) {
    Pointer place;
    Word words[] = {(Word)pinned, 8, 9}, ns = LATE;
    void *arguments[] = {&place, &ns};
    handed(stream, (Pointer)pinned, 7);
    OK(cuCtxSynchronize());
    OK(cuMemAlloc(&place, 1 << 20));
    OK(cuMemcpyHtoD(place, words, sizeof words));
    free_something();
    OK(cuLaunchKernel(indirect, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
    free_something();
    host_finds(9);
}

int main(int count, char **words) {
    void *module, *host;
    CHECK(count == 3);
    start_cuda();
    find_functions();
    OK(cuStreamCreate(&stream, 1));
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&delay, module, "delay"));
    OK(cuModuleGetFunction(&indirect, module, "indirect_fill"));
    OK(cuMemHostAlloc(&host, 4096, 0));
    pinned = host;
    load(words[1]);
    start();
    if (!strcmp(words[2], "once"))
        once();
    if (!strcmp(words[2], "kept_out_of_a_table"))
        kept_by(by_table);
    if (!strcmp(words[2], "kept"))
        kept_by(by_address);
    OK(cuCtxSynchronize());
    printf("%s\n", words[2]);
    return 0;
}
