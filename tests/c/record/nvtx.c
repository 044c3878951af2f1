// nvtx: a program that pushes ranges as NVTX's headers do, with their tables and their lookup of the
// tool, and allocates in them. Prints what the environment names, and whether there is a tool.
#include "../check.h"
#include <wchar.h>

enum { CORE = 1, CORE2 = 5, CORE_SIZE = 16, CORE2_SIZE = 16 };
typedef void (*Function)(void);

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static Function core[CORE_SIZE], core2[CORE2_SIZE];
static Function *core_slots[CORE_SIZE], *core2_slots[CORE2_SIZE];

static int functions_of(int module, Function ***slots, unsigned *size) {
    *slots = module == CORE ? core_slots : module == CORE2 ? core2_slots : NULL;
    *size = *slots ? 16 : 0;
    return *slots != NULL;
}

static struct {
    size_t size;
    int (*functions_of)(int, Function ***, unsigned *);
} callbacks = {sizeof callbacks, functions_of};

static const void *table(uint32_t number) {
    return number == 1 ? &callbacks : NULL;
}

static int load_tool(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    printf("%s\n", path ? path : "nothing");
    void *tool = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    *(void **)&initialize = dlsym(path ? tool : RTLD_DEFAULT, "InitializeInjectionNvtx2");
    // Slot 0 has no function, which the tool must accept.
    for (int i = 1; i < 16; i++)
        core_slots[i] = &core[i], core2_slots[i] = &core2[i];
    return (!path || tool) && initialize && initialize(table);
}

static void push(const char *name) {
    if (core[9])
        ((int (*)(const char *))core[9])(name);
}

static void push_wide(const wchar_t *name) {
    if (core[10])
        ((int (*)(const wchar_t *))core[10])(name);
}

static void push_with(int type, const void *message) {
    struct attributes attributes = {.version = 3, .size = sizeof attributes, .message_type = type, .message = message};
    if (core[8])
        ((int (*)(const struct attributes *))core[8])(&attributes);
}

static void push_in_domain(int type, const void *message) {
    struct attributes attributes = {.version = 3, .size = sizeof attributes, .message_type = type, .message = message};
    if (core2[4])
        ((int (*)(void *, const struct attributes *))core2[4])(NULL, &attributes);
}

static void pop(void) {
    if (core[11])
        ((int (*)(void))core[11])();
}

static void pop_in_domain(void) {
    if (core2[5])
        ((int (*)(void *))core2[5])(NULL);
}

static void keep(int kib) {
    Pointer block;
    OK(cuMemAlloc(&block, (size_t)kib << 10));
}

int main(void) {
    puts(load_tool() ? "a tool" : "no tool");
    start_cuda();
    const void *registered = NULL;
    if (core2[10])
        registered = ((const void *(*)(void *, const char *))core2[10])(NULL, "registered");
    keep(1);
    push("plain");
    keep(2);
    push_with(1, "with attributes");
    keep(4);
    pop();
    push_with(2, L"w\u00efde");
    keep(8);
    pop();
    pop();
    push_wide(L"wide");
    push_in_domain(3, registered);
    keep(16);
    pop_in_domain();
    push_in_domain(0, NULL);
    keep(32);
    pop_in_domain();
    pop();
    if (core[8])
        ((int (*)(const struct attributes *))core[8])(NULL);
    keep(64);
    pop();
    keep(128);
    return 0;
}
