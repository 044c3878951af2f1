// Queries `cuGetProcAddress` in both forms for every base name, with every version that the name
// has, adjacent versions, and all flags. Prints the code, the status and the *symbol* at the
// returned address, so that the output is the same with and without the library. Arguments: the
// table of functions; what to print beside the symbol ("file" or nothing).
#include "../check.h"

typedef int Old(const char *, void **, int, uint64_t);
typedef int New(const char *, void **, int, uint64_t, int *);

static int show_file;
static Old *old_form;
static New *new_form;

static void show(int code, int status, void *address) {
    Dl_info info = {0};
    if (address)
        CHECK(dladdr(address, &info) && info.dli_sname && info.dli_saddr == address);
    printf(" %d %d %s %s\n", code, status, address ? info.dli_sname : "null",
           show_file && address ? file_of(address) : "");
}

static void ask(const char *base, int version, uint64_t flags) {
    void *address = NULL;
    int status = -1;
    printf("%s %d %d", base, version, (int)flags);
    int code = old_form(base, &address, version, flags);
    show(code, 0, address);
    if (!new_form)
        return;
    printf("%s %d %d", base, version, (int)flags);
    address = NULL;
    code = new_form(base, &address, version, flags, &status);
    show(code, status, address);
    void *again = NULL;
    CHECK(new_form(base, &again, version, flags, NULL) == code && again == address);
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    show_file = count > 2;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    Old *exported = (Old *)dlsym(driver, "cuGetProcAddress");
    CHECK(exported);
    // Like CUDA's runtime: from here on uses only what the resolver returns, including the resolver
    // itself.
    OK(exported("cuGetProcAddress", (void **)&old_form, 11030, 0));
    CHECK(old_form && (void *)old_form == (void *)exported);
    if (dlsym(driver, "cuGetProcAddress_v2")) { // drivers before 12.0 have the old form only
        OK(old_form("cuGetProcAddress", (void **)&new_form, 12000, 0));
        CHECK((void *)new_form == dlsym(driver, "cuGetProcAddress_v2"));
    }

    FILE *table = fopen(arguments[1], "r");
    CHECK(table);
    char line[2048];
    CHECK(fgets(line, sizeof line, table));
    while (fgets(line, sizeof line, table)) {
        char *rest = line, *symbol = strsep(&rest, ","), *base = strsep(&rest, ",");
        int version = atoi(strsep(&rest, ","));
        for (uint64_t flags = 0; flags <= 2; flags++) {
            ask(base, version, flags);
            ask(base, version - 1, flags);
            ask(base, 13000, flags);
            ask(base, 13050, flags);
            ask(symbol, 13000, flags);
        }
        void *by_name = dlsym(driver, symbol);
        printf("dlsym %s", symbol);
        show(0, 0, by_name);
    }
    ask("", 0, 0);
    ask("cuNowhere", 12000, 0);
    ask("cuMemAlloc", 12000, 64);
    ask("cuMemAlloc", 999999, 0);
    return 0;
}
