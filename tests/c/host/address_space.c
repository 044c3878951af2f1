// Makes small allocations only, and prints the largest address space that the process ever had, in
// kB.
#include "../check.h"

int main(void) {
    start_cuda();
    for (int i = 0; i < 100; i++) {
        Pointer pointer;
        OK(cuMemAlloc(&pointer, 512 + i));
        OK(cuMemFree(pointer));
    }
    // Waits until threads of the driver and of the library have started, if they do: otherwise two
    // runs cannot be compared.
    usleep(200000);
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    long peak = 0;
    for (char line[256]; fgets(line, sizeof line, status);)
        if (sscanf(line, "VmPeak: %ld", &peak) == 1)
            printf("%ld\n", peak);
    return !peak;
}
