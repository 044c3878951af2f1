// What makes a process one that others look at: `observers LIBRARY` loads one, `observers table` asks for
// an export table that nothing documents.
#include "check.h"

int main(int count, char **words) {
    static const unsigned char table_id[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                               0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    int (*cuGetExportTable)(const void **, const void *);
    const void *table = 0;
    CHECK(count == 2);
    start_cuda();
    if (!strcmp(words[1], "table")) {
        *(void **)&cuGetExportTable = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetExportTable");
        cuGetExportTable(&table, table_id);
    } else {
        CHECK(dlopen(words[1], RTLD_NOW));
    }
    loop(10);
    return 0;
}
