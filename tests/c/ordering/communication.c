// A program with a communication library: `communication LIBRARY PROGRAM`. Another process that
// this one notifies after a free has returned is modelled by a host read that nothing but the free
// orders.
#include "communication.h"

static void (*start)(void);
static Pointer (*buffer)(void);
static Word *(*flags)(void);
static void (*collective)(void *stream, Word value);
static void (*send)(void *stream, Pointer from);
static Pointer (*give)(void);
static void (*enlist)(Pointer);
static Pointer (*symmetric)(void);

static void *streams[2], *fill;
static Pointer unrelated;

static void load(const char *library) {
    void *opened = dlopen(library, RTLD_NOW);
    CHECK(opened);
    *(void **)&start = dlsym(opened, "start");
    *(void **)&buffer = dlsym(opened, "buffer");
    *(void **)&flags = dlsym(opened, "flags");
    *(void **)&collective = dlsym(opened, "collective");
    *(void **)&send = dlsym(opened, "send");
    *(void **)&give = dlsym(opened, "give");
    *(void **)&enlist = dlsym(opened, "enlist");
    *(void **)&symmetric = dlsym(opened, "symmetric");
    CHECK(start && symmetric);
}

static void write_late(int stream, Pointer at, Word value) {
    Word bytes = 8, ns = LATE;
    void *arguments[] = {&at, &bytes, &value, &ns};
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, streams[stream], arguments, 0));
}

static void peer_finds(Pointer at, Word value) {
    sim_host_read(at, 8);
    CHECK(*(volatile Word *)at == value);
}

// Training beside a library that is idle: no free has to wait.
static void quiet(void) {
    for (int i = 0; i < 20; i++) {
        Pointer block;
        OK(cuMemAlloc(&block, 1 << 20));
        write_late(i % 2, block, i);
        OK(cuMemFree(block));
    }
}

// After a free has returned, the results of an earlier collective are there.
static void behind(void) {
    collective(streams[0], 7);
    OK(cuMemFree(unrelated));
    peer_finds(buffer(), 7);
    peer_finds((Pointer)flags(), 7);
}

// A block changes hands while a kernel uses it, and is sent by a collective on another stream.
static void recycled(void) {
    Pointer block, again;
    OK(cuMemAlloc(&block, 1 << 20));
    write_late(0, block, 1);
    OK(cuMemFree(block));
    OK(cuMemAlloc(&again, 1 << 20));
    write_late(1, again, 2);
    send(streams[1], again);
    OK(cuMemFree(again));
    peer_finds(buffer(), 2);
}

// Other processes may read what kernels of the program write.
static void read_by_peers(Pointer shared) {
    write_late(0, shared, 7);
    OK(cuMemFree(unrelated));
    peer_finds(shared, 7);
}

static void registered(void) {
    Pointer shared = give();
    enlist(shared);
    read_by_peers(shared);
}

static void symmetrical(void) { read_by_peers(symmetric()); }

// Memory that the program itself exports, while the library is loaded.
static void own(void) {
    struct Properties properties = {.kind = 1, .handle_types = 1, .location = {1, 0}};
    struct Access access = {{1, 0}, 3};
    Pointer shared;
    void *handle;
    int file;
    OK(cuMemCreate(&handle, 2 << 20, &properties, 0));
    OK(cuMemAddressReserve(&shared, 2 << 20, 0, 0, 0));
    OK(cuMemMap(shared, 2 << 20, 0, handle, 0));
    OK(cuMemSetAccess(shared, 2 << 20, &access, 1));
    OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
    read_by_peers(shared);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } programs[] = {{"quiet", quiet},           {"behind", behind},           {"recycled", recycled},
                    {"registered", registered}, {"symmetrical", symmetrical}, {"own", own}};
    void *module;
    CHECK(count == 3);
    start_cuda();
    find_functions();
    OK(cuStreamCreate(&streams[0], 1));
    OK(cuStreamCreate(&streams[1], 1));
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&fill, module, "late_fill"));
    OK(cuMemAlloc(&unrelated, 1 << 20));
    load(words[1]);
    start();
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(programs[i].name, words[2]))
            programs[i].run();
    OK(cuCtxSynchronize());
    printf("%s\n", words[2]);
    return 0;
}
