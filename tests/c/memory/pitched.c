// Prints the results of cuMemAllocPitch, for the first request and later ones: pitch, address,
// size, contents, refusals.
#include "../check.h"

static int (*cuMemAllocPitch)(Pointer *, size_t *, size_t, size_t, unsigned);
static int (*cuMemGetAddressRange)(Pointer *, size_t *, Pointer);
static int (*cuMemcpyDtoH)(void *, Pointer, size_t);

static Pointer show(size_t width, size_t rows, unsigned element) {
    Pointer made = 7, base = 0;
    size_t pitch = 7, bytes = 0;
    unsigned char last = 0;
    int code = cuMemAllocPitch(&made, &pitch, width, rows, element);
    printf("%zu x %zu, element %u: %d, pitch %zu", width, rows, element, code, pitch);
    if (code) {
        printf(", place %llu\n", made);
        return 0;
    }
    OK(cuMemGetAddressRange(&base, &bytes, made));
    OK(cuMemsetD8(made, 3, bytes));
    OK(cuMemcpyDtoH(&last, made + bytes - 1, 1));
    printf(", %zu bytes from %lld, last %d\n", bytes, made - base, last);
    return made;
}

int main(void) {
    static const size_t widths[] = {1, 100, 512, 513, 4000, 65537}, rows[] = {1, 3, 100};
    static const unsigned elements[] = {4, 8, 16};
    start_cuda();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&cuMemAllocPitch = dlsym(driver, "cuMemAllocPitch_v2");
    *(void **)&cuMemGetAddressRange = dlsym(driver, "cuMemGetAddressRange_v2");
    *(void **)&cuMemcpyDtoH = dlsym(driver, "cuMemcpyDtoH_v2");
    for (int round = 0; round < 4; round++)
        for (int w = 0; w < 6; w++)
            for (int r = 0; r < 3; r++)
                OK(cuMemFree(show(widths[w], rows[r], elements[(w + r) % 3])));
    // The pitch of this width is already known.
    show(4000, 0, 4);
    show(4000, (size_t)1 << 40, 4);
    OK(cuCtxSetCurrent(0));
    show(4000, 10, 4);
    return 0;
}
