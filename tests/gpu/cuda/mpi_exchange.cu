// nvcc: MPI
// Two ranks of MPI exchange blocks of device memory: through pinned memory and, if this MPI accepts
// device memory, directly. The frees between a kernel or a copy and the exchange are the only
// waits.
#if __has_include(<mpi.h>)
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "check.h"

constexpr unsigned long long LATE = 5000000;  // ns

bool takes_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support();
#else
    return false;
#endif
}

int rank, other;

// Returns the number of words that differ from what the other rank has written.
unsigned long long exchange(bool directly) {
    cudaStream_t stream = new_stream();
    unsigned long long *wrong = device_alloc<unsigned long long>(256), errors;
    uint32_t *out = pinned_alloc(4 << 20), *back = pinned_alloc(4 << 20);
    CHECK(cudaMemset(wrong, 0, 256));
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < 24; round++) {
        size_t words = 256 << round % 12;
        uint32_t *block = device_alloc(words * 4), *incoming = device_alloc(words * 4), *temporary = device_alloc(4096);
        fill<<<8, 256, 0, stream>>>(block, words, round << 4 | rank, LATE);
        if (!directly) CHECK(cudaMemcpyAsync(out, block, words * 4, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFree(temporary));
        void *from = directly ? (void *)block : out, *to = directly ? (void *)incoming : back;
        MPI_Sendrecv(from, words, MPI_UINT32_T, other, round, to, words, MPI_UINT32_T, other, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!directly) CHECK(cudaMemcpyAsync(incoming, back, words * 4, cudaMemcpyHostToDevice, stream));
        count_wrong<<<8, 256, 0, stream>>>(incoming, words, round << 4 | other, wrong);
        CHECK(cudaFree(block));
        CHECK(cudaFree(incoming));  // after it `back` may be written again
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&errors, wrong, sizeof errors, cudaMemcpyDeviceToHost));
    CHECK(cudaFreeHost(out));
    CHECK(cudaFreeHost(back));
    CHECK(cudaFree(wrong));
    return errors;
}

int main(int argc, char **argv) {
    int size, devices;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    watchdog("mpi_exchange", 60);
    if (size != 2) {
        printf("skipped: %d ranks instead of 2\n", size);
    } else {
        other = 1 - rank;
        CHECK(cudaGetDeviceCount(&devices));
        CHECK(cudaSetDevice(rank % devices));
        load_kernels();
        printf("rank %d, through the host: %llu wrong\n", rank, exchange(false));
        if (takes_device_memory()) printf("rank %d, device memory: %llu wrong\n", rank, exchange(true));
        else printf("rank %d, device memory: not taken by this MPI\n", rank);
    }
    MPI_Finalize();
    return 0;
}
#else
#include <stdio.h>

int main() {
    printf("skipped: no mpi.h on the machine that built this\n");
    return 0;
}
#endif
