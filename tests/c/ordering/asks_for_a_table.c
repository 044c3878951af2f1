// A library that requests the export table of cuFFT as soon as it is loaded.
#include <dlfcn.h>

__attribute__((constructor)) static void ask(void) {
    static const unsigned char id[16] = {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d,
                                         0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e};
    const void *table = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(const void **, const unsigned char *);
    *(void **)&get = driver ? dlsym(driver, "cuGetExportTable") : 0;
    if (get)
        get(&table, id);
}
