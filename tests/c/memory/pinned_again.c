// pinned_again [SHAPES [MORE|registered|elsewhere]]: pinned memory in a loop, and what the driver
// reports about it: contents, flags, refusals.
#include "../check.h"

static int (*alloc_as)(void **, size_t, unsigned), (*alloc_plain)(void **, size_t), (*free_host)(void *);
static int (*register_as)(void *, size_t, unsigned), (*attribute_of)(void *, int, Pointer);
static int (*attributes_of)(unsigned, int *, void **, Pointer);

/// Each allocation has an id that no other has had.
static int is_new(char *memory, size_t bytes) {
    static unsigned long long known[1000];
    static int count;
    unsigned long long id = 0, last = 1;
    int kind = 7, is_new = 1;
    void *place = &last;
    OK(attribute_of(&id, kind, (Pointer)memory));
    OK(attributes_of(1, &kind, &place, (Pointer)(memory + bytes - 1)));
    for (int i = 0; i < count; i++)
        is_new = is_new && known[i] != id;
    known[count++] = id;
    return is_new && id == last;
}
static int (*flags_of)(unsigned *, void *), (*range_of)(Pointer *, size_t *, Pointer);

static void look(char *memory, size_t bytes) {
    unsigned flags = 99;
    Pointer base;
    size_t all = 0;
    OK(flags_of(&flags, memory));
    int code = range_of(&base, &all, (Pointer)memory);
    printf("flags %u, first %d, last %d; %d, %zu bytes; new %d\n", flags, memory[0], memory[bytes - 1], code, all,
           is_new(memory, bytes));
    memset(memory, 7, bytes);
}

int main(int count, char **words) {
    static const size_t sizes[] = {1, 4096, 100000, 1 << 20};
    void *driver, *memory, *other;
    start_cuda();
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&alloc_as = dlsym(driver, "cuMemHostAlloc");
    *(void **)&alloc_plain = dlsym(driver, "cuMemAllocHost_v2");
    *(void **)&free_host = dlsym(driver, "cuMemFreeHost");
    *(void **)&register_as = dlsym(driver, "cuMemHostRegister_v2");
    *(void **)&flags_of = dlsym(driver, "cuMemHostGetFlags");
    // Refused, as when a program tries how many blocks fit.
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
    *(void **)&launch = dlsym(driver, "cuLaunchCooperativeKernel");
    printf("launched: %d\n", launch(0, 1, 1, 1, 1, 1, 1, 0, 0, 0) == 0);
    *(void **)&attribute_of = dlsym(driver, "cuPointerGetAttribute");
    *(void **)&attributes_of = dlsym(driver, "cuPointerGetAttributes");
    *(void **)&range_of = dlsym(driver, "cuMemGetAddressRange_v2");
    if (count > 1) {
        // This many shapes, all alive at once, are freed; twice.
        int shapes = atoi(words[1]);
        void **all = calloc(shapes, sizeof *all);
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < shapes; i++)
                OK(alloc_as(&all[i], 4096 + 64 * i, 0));
            for (int i = 0; i < shapes; i++)
                OK(free_host(all[i]));
        }
        // A retained piece serves a request, and then this many other shapes are allocated and
        // freed.
        int more = count > 2 ? atoi(words[2]) : 0;
        if (more) {
            OK(alloc_as(&memory, 4096 + 64 * (shapes - 1), 0));
            OK(free_host(memory));
        }
        for (int i = shapes; i < shapes + more; i++) {
            OK(alloc_as(&memory, 4096 + 64 * i, 0));
            OK(free_host(memory));
        }
        if (count > 2 && words[2][0] == 'e') {
            // Each of two contexts has had work, which is complete.
            int (*create)(void **, unsigned, int);
            *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
            Pointer block;
            void *second;
            for (int context = 0; context < 2; context++) {
                OK(cuMemAlloc(&block, 4096));
                OK(cuMemsetD8(block, 1, 4096));
                OK(cuCtxSynchronize());
                if (!context)
                    OK(create(&second, 0, 0));
            }
        }
        if (count > 2 && words[2][0] == 'r')
            OK(register_as(aligned_alloc(4096, 1 << 20), 1 << 20, 0));
        else
            printf("served: %d\n", alloc_as(&memory, 1 << 20, 0) == 0);
        return 0;
    }
    for (int round = 0; round < 5; round++)
        for (int s = 0; s < 4; s++) {
            for (unsigned flags = 0; flags < 8; flags++) {
                OK(alloc_as(&memory, sizes[s], flags));
                look(memory, sizes[s]);
                OK(free_host(memory));
            }
            OK(alloc_plain(&memory, sizes[s]));
            OK(alloc_plain(&other, sizes[s]));
            CHECK(memory != other);
            look(memory, sizes[s]);
            look(other, sizes[s]);
            OK(free_host(other));
            printf("again: %d\n", free_host(other));
            OK(free_host(memory));
        }
    printf("inside: %d, null: %d, none: %d\n", free_host((char *)memory + 64), free_host(0), alloc_as(&memory, 0, 0));
    OK(cuCtxSetCurrent(0));
    printf("without a context: %d\n", alloc_as(&memory, 4096, 0));
    return 0;
}
