// Ways in which a process may become observed: `observers LIBRARY` loads a library, `observers table`
// requests an undocumented export table; `observers work` submits work to one stream and frees, and
// `observers work table` then requests that table.
#include "../check.h"

static void work_on_one_stream(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *stream;
    int (*cuStreamCreate)(void **, unsigned) = dlsym(driver, "cuStreamCreate");
    int (*cuMemsetD8Async)(Pointer, unsigned char, size_t, void *) = dlsym(driver, "cuMemsetD8Async");
    Pointer block;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc(&block, 4096));
    OK(cuMemsetD8Async(block, 1, 4096, stream));
    OK(cuMemFree(block));
}

int main(int count, char **words) {
    static const unsigned char table_id[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                               0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    int (*cuGetExportTable)(const void **, const void *);
    const void *table = 0;
    int works = count > 1 && !strcmp(words[1], "work");
    CHECK(count >= 2);
    start_cuda();
    if (works)
        work_on_one_stream();
    if (works && count == 2)
        return 0;
    if (!strcmp(words[count - 1], "table")) {
        *(void **)&cuGetExportTable = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetExportTable");
        cuGetExportTable(&table, table_id);
    } else {
        CHECK(dlopen(words[1], RTLD_NOW));
    }
    if (!works)
        loop(10);
    return 0;
}
