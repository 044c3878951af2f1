// nvcc: -lcuda
// Prints the cost of an allocation of each kind and its free, alone and while a kernel runs
// elsewhere, as `name alone behind`, in microseconds. Then temporaries as image programs use them:
// allocation, kernel, free.
//
//   kinds           without the library, or under it (preloaded)
//   kinds answers   the pitch that the driver chooses, and its results for such memory
#include <algorithm>
#include <functional>

#include "../cuda/check.h"

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

__global__ void spin_while(volatile int *flag) {
    while (*flag == 0) __nanosleep(1000);
}
__global__ void touch(char *memory) { memory[threadIdx.x] = 1; }

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Returns the median of some pairs, within about 0.3 s.
double alone(const std::function<void()> &pair) {
    for (int i = 0; i < 3; i++) pair();
    std::vector<double> times;
    for (auto begin = Clock::now(); times.size() < 5 || (us_since(begin) < 3e5 && times.size() < 2000);) {
        auto start = Clock::now();
        pair();
        times.push_back(us_since(start));
    }
    return median(times);
}

// Returns the time of the first pair while a kernel runs that ends 20 ms after its start, whatever
// the pair does.
double behind(const std::function<void()> &pair) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    volatile int *flag;
    CHECK(cudaHostAlloc((void **)&flag, 64, cudaHostAllocPortable));
    std::vector<double> times;
    for (int i = 0; i < 5; i++) {
        CHECK(cudaDeviceSynchronize());
        *flag = 0;
        spin_while<<<1, 1, 0, stream>>>(flag);
        CHECK(cudaGetLastError());
        std::thread ends([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            *flag = 1;
        });
        auto start = Clock::now();
        pair();
        times.push_back(us_since(start));
        ends.join();
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost((void *)flag));
    CHECK(cudaStreamDestroy(stream));
    return median(times);
}

void created_and_mapped(size_t bytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CHECK_DRIVER(cuMemCreate(&handle, bytes, &properties, 0));
    CHECK_DRIVER(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemSetAccess(address, bytes, &access, 1));
    CHECK_DRIVER(cuMemUnmap(address, bytes));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemAddressFree(address, bytes));
}

void costs() {
    const size_t width = 4000, height = 1000, bytes = 4 << 20;
    static char *const registered = (char *)aligned_alloc(4096, bytes);
    memset(registered, 0, bytes);
    auto pitched = [=] {
        void *memory;
        size_t pitch;
        CHECK(cudaMallocPitch(&memory, &pitch, width, height));
        CHECK(cudaFree(memory));
    };
    const struct {
        const char *name;
        std::function<void()> pair;
    } kinds[] = {
        {"cudaMalloc", [=] { void *memory; CHECK(cudaMalloc(&memory, bytes)); CHECK(cudaFree(memory)); }},
        {"cudaMallocPitch", pitched},
        {"cudaMalloc3D", [=] {
             cudaPitchedPtr memory;
             CHECK(cudaMalloc3D(&memory, make_cudaExtent(width, 100, 10)));
             CHECK(cudaFree(memory.ptr));
         }},
        {"cudaMallocArray", [=] {
             cudaArray_t array;
             cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
             CHECK(cudaMallocArray(&array, &format, 1000, height));
             CHECK(cudaFreeArray(array));
         }},
        {"cudaHostAlloc", [=] { void *memory; CHECK(cudaHostAlloc(&memory, bytes, 0)); CHECK(cudaFreeHost(memory)); }},
        {"cudaHostRegister", [=] {
             CHECK(cudaHostRegister(registered, bytes, 0));
             CHECK(cudaHostUnregister(registered));
         }},
        {"cudaMallocManaged", [=] { void *memory; CHECK(cudaMallocManaged(&memory, bytes)); CHECK(cudaFree(memory)); }},
        {"cuMemCreate+map", [=] { created_and_mapped(bytes); }},
        {"cudaStreamCreate", [] { cudaStream_t stream; CHECK(cudaStreamCreate(&stream)); CHECK(cudaStreamDestroy(stream)); }},
        {"cudaEventCreate", [] { cudaEvent_t event; CHECK(cudaEventCreate(&event)); CHECK(cudaEventDestroy(event)); }},
    };
    for (auto &kind : kinds) {
        double by_itself = alone(kind.pair);
        printf("%s %.2f %.2f\n", kind.name, by_itself, behind(kind.pair));
        fflush(stdout);
    }
    // Ten temporaries for an image of each size, as a filter uses them.
    std::vector<double> times;
    for (int i = 0; i < 60; i++) {
        auto start = Clock::now();
        for (size_t rows : {270, 540, 1080, 540, 270, 1080, 270, 540, 1080, 270}) {
            void *memory;
            size_t pitch;
            CHECK(cudaMallocPitch(&memory, &pitch, rows * 16 / 3, rows));
            touch<<<1, 32>>>((char *)memory);
            CHECK(cudaFree(memory));
        }
        times.push_back(us_since(start) / 10);
    }
    printf("pitched+kernel %.2f -\n", median(times));
    std::vector<double> staged;
    void *device;
    CHECK(cudaMalloc(&device, bytes));
    for (int i = 0; i < 60; i++) {
        auto start = Clock::now();
        void *host;
        CHECK(cudaHostAlloc(&host, bytes, 0));
        memset(host, i, 4096);
        CHECK(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, 0));
        CHECK(cudaFreeHost(host));
        staged.push_back(us_since(start));
    }
    printf("pinned+copy %.2f -\n", median(staged));
    CHECK(cudaDeviceSynchronize());
}

// The pitch of a width must depend neither on the height nor on the call, and the memory is pitch *
// height bytes.
void answers() {
    size_t asked = 0, other = 0, uneven = 0, sized = 0;
    const size_t widths[] = {1, 3, 4, 31, 32, 33, 63, 64, 100, 127, 128, 255, 256, 257, 511, 512, 513, 1000, 1024, 1025, 2047, 4000,
                             4096, 5000, 8191, 8192, 10000, 16384, 20000, 32768, 65535, 65536, 65537, 100000, 131072, 200000, 1 << 20};
    for (unsigned element : {4, 8, 16})
        for (size_t width : widths) {
            size_t first = 0;
            for (size_t height : {1, 2, 3, 7, 64, 100, 1000, 4097, 1}) {
                CUdeviceptr memory, base;
                size_t pitch, bytes;
                if (width * height > (size_t)4 << 30) continue;
                CHECK_DRIVER(cuMemAllocPitch(&memory, &pitch, width, height, element));
                CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, memory));
                asked++;
                if (first == 0) first = pitch;
                other += pitch != first;
                uneven += pitch % 512 != 0 || pitch - width >= 512 || memory % 512 != 0;
                if (base != memory || bytes != pitch * height) {
                    if (sized++ < 5) printf("%zu x %zu, element %u: pitch %zu, %zu bytes\n", width, height, element, pitch, bytes);
                }
                CHECK_DRIVER(cuMemFree(memory));
            }
        }
    // What a refused call leaves in the program's outputs.
    CUdeviceptr memory = 7;
    size_t pitch = 7;
    int code = cuMemAllocPitch(&memory, &pitch, 4000, (size_t)1 << 40, 4);
    printf("refused: %d, place %llu, pitch %zu\n", code, memory, pitch);
    printf("%zu asked: %zu other pitches of a width, %zu not the next multiple of 512, %zu other sizes\n", asked, other, uneven, sized);
}

int main(int count, char **arguments) {
    watchdog("kinds", 60);
    CHECK(cudaFree(0));
    if (count > 1 && !strcmp(arguments[1], "answers")) answers();
    else costs();
    return 0;
}
