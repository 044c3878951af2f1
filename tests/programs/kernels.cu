// The kernels that the test programs launch. kernels.ptx contains the same kernels, written by
// hand; `nvcc -ptx -arch=sm_70 kernels.cu` makes an equivalent module. The simulated driver knows
// them by name.
//
// One thread of one block does the work, so the result does not depend on the grid. Every parameter
// is one 64-bit word, and all effects happen at the end of the delay.

typedef unsigned long long u64;

__device__ static bool first_thread() { return (threadIdx.x | blockIdx.x) == 0; }

__device__ static u64 now_ns() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__device__ static void wait_ns(u64 ns) {
    u64 start = now_ns();
    while (now_ns() - start < ns) {
    }
}

// Sets every word to `value`.
extern "C" __global__ void fill(volatile u64 *at, u64 bytes, u64 value, u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    for (u64 i = 0; i < bytes / 8; i++) at[i] = value;
}

// Like `fill`, under a name that tells what the test relies on: memory does not change before the
// end.
extern "C" __global__ void late_fill(volatile u64 *at, u64 bytes, u64 value, u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    for (u64 i = 0; i < bytes / 8; i++) at[i] = value;
}

struct Target {
    volatile u64 *at;
    u64 bytes;
    u64 value;
};

// Its target is in device memory, which no launch argument shows.
extern "C" __global__ void indirect_fill(volatile Target *target, u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    volatile u64 *at = target->at;
    u64 bytes = target->bytes;
    u64 value = target->value;
    for (u64 i = 0; i < bytes / 8; i++) at[i] = value;
}

extern "C" __global__ void copy(volatile u64 *dst, volatile u64 *src, u64 bytes, u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    for (u64 i = 0; i < bytes / 8; i++) dst[i] = src[i];
}

extern "C" __global__ void add(volatile u64 *dst, volatile u64 *src, u64 bytes, u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    for (u64 i = 0; i < bytes / 8; i++) dst[i] += src[i];
}

// Adds to `*wrong` the number of words that are not `value`.
extern "C" __global__ void check(volatile u64 *at, u64 bytes, u64 value, volatile u64 *wrong,
                                 u64 delay_ns) {
    if (!first_thread()) return;
    wait_ns(delay_ns);
    u64 count = 0;
    for (u64 i = 0; i < bytes / 8; i++) count += at[i] != value;
    *wrong += count;
}

extern "C" __global__ void delay(u64 ns) {
    if (first_thread()) wait_ns(ns);
}

// Runs until later work or the host sets the flag.
extern "C" __global__ void spin(volatile u64 *flag, u64 value) {
    if (!first_thread()) return;
    while (*flag != value) {
    }
    __threadfence_system();
}

// The address of the flag is in device memory.
extern "C" __global__ void indirect_spin(volatile u64 *volatile *flag, u64 value) {
    if (!first_thread()) return;
    volatile u64 *at = *flag;
    while (*at != value) {
    }
    __threadfence_system();
}

extern "C" __global__ void set(volatile u64 *flag, u64 value) {
    if (!first_thread()) return;
    __threadfence_system();
    *flag = value;
    __threadfence_system();
}

// Fails with an illegal address.
extern "C" __global__ void fault() {
    if (first_thread()) *(volatile u64 *)0 = 0;
}
