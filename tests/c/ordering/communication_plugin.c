// A communication library, under whatever name it is loaded: it shares its own memory and memory of
// the program with other processes, and its kernels wait there for those of the others.
#include "communication.h"

#define PAGE (2 << 20)
#define LARGE (8ull << 30)

static Pointer shared_buffer;
static Word *host_buffer;
static void *write_kernel, *copy_kernel;

// Allocates a buffer of the library that other processes can map.
static Pointer made(int location, void **handle) {
    struct Properties properties = {.kind = 1, .handle_types = 1, .location = {location, 0}};
    struct Access access = {{1, 0}, 3};
    Pointer address;
    OK(cuMemCreate(handle, PAGE, &properties, 0));
    OK(cuMemAddressReserve(&address, PAGE, 0, 0, 0));
    OK(cuMemMap(address, PAGE, 0, *handle, 0));
    OK(cuMemSetAccess(address, PAGE, &access, 1));
    return address;
}

static void *sent(void *handle) {
    int file;
    void *arrived;
    OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
    OK(cuMemImportFromShareableHandle(&arrived, (void *)(intptr_t)file, 1));
    close(file);
    return arrived;
}

// Binds a buffer of the library to an object that all devices write to at once.
static void multicast(void *handle) {
    const Word properties[] = {1, PAGE, 1, 0};
    void *object;
    OK(cuMulticastCreate(&object, properties));
    OK(cuMulticastAddDevice(object, 0));
    OK(cuMulticastBindMem(object, 0, handle, 0, PAGE, 0));
}

void start(void) {
    void *handle, *host, *module;
    Pointer mapped;
    find_functions();
    if (getenv("TOOL"))
        CHECK((*(void **)&cuLaunchKernel = dlsym(dlopen(getenv("TOOL"), RTLD_NOW), "launch")) != 0);
    shared_buffer = made(1, &handle);
    multicast(handle);
    OK(cuMemRelease(sent(handle)));
    made(3, &handle);
    OK(cuMemRelease(sent(handle)));
    OK(cuMemHostAlloc(&host, 4096, 2));
    OK(cuMemHostGetDevicePointer(&mapped, host, 0));
    host_buffer = host;
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&write_kernel, module, "late_fill"));
    OK(cuModuleGetFunction(&copy_kernel, module, "copy"));
}

Pointer buffer(void) { return shared_buffer; }

Word *flags(void) { return host_buffer; }

void collective(void *stream, Word value) {
    Pointer targets[] = {shared_buffer, (Pointer)host_buffer};
    for (int i = 0; i < 2; i++) {
        Word bytes = 8, ns = LATE;
        void *arguments[] = {&targets[i], &bytes, &value, &ns};
        OK(cuLaunchKernel(write_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
    }
}

void send(void *stream, Pointer from) {
    Word bytes = 8, ns = LATE;
    void *arguments[] = {&shared_buffer, &from, &bytes, &ns};
    OK(cuLaunchKernel(copy_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
}

Pointer give(void) {
    void *handle;
    return made(1, &handle);
}

void enlist(Pointer address) {
    void *handle;
    OK(cuMemRetainAllocationHandle(&handle, address));
    OK(cuMemRelease(sent(handle)));
    OK(cuMemRelease(handle));
}

Pointer symmetric(void) {
    Pointer all;
    void *handle;
    OK(cuMemAddressReserve(&all, LARGE, 0, 0, 0));
    Pointer address = made(1, &handle);
    OK(cuMemRelease(sent(handle)));
    return address;
}
