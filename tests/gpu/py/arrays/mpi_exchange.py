# Two ranks exchange blocks of device memory under MPI: through the host and, if this MPI accepts device memory,
# directly. The frees between a kernel and an exchange are the only waits.
#
# needs: mpi4py cupy
import ctypes
import sys

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    print(f"skipped: mpi4py: {str(error).splitlines()[0]}")
    sys.exit(0)
import cupy
import numpy


def takes_device_memory():
    """Returns whether Open MPI reports support; other MPIs are not asked, since a wrong guess ends in a crash."""
    try:
        return bool(ctypes.CDLL("libmpi.so").MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        pass
    try:
        return bool(ctypes.CDLL("libmpi.so.40").MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        return False


world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
if size != 2:
    print(f"skipped: {size} ranks instead of 2")
    sys.exit(0)
cupy.cuda.Device(rank % cupy.cuda.runtime.getDeviceCount()).use()
cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)
other = 1 - rank
spin = cupy.RawKernel(
    r"""
extern "C" __global__ void fill_late(long long *x, int n, long long value) {
    long long start = clock64();
    while (clock64() - start < 5000000) {}
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value;
}""",
    "fill_late",
)

wrong = 0
stream = cupy.cuda.Stream(non_blocking=True)
out = numpy.frombuffer(cupy.cuda.alloc_pinned_memory(8 << 18), numpy.int64, 1 << 18)
back = numpy.frombuffer(cupy.cuda.alloc_pinned_memory(8 << 18), numpy.int64, 1 << 18)
for i in range(20):
    n = 1000 + 12345 * i % (1 << 18)
    value = 1000 * i + rank
    with stream:
        block = cupy.empty(n, numpy.int64)
        temporary = cupy.empty(n, numpy.int64)
        spin((8,), (256,), (block, numpy.int32(n), numpy.int64(value)))
        block.get(stream=stream, out=out[:n], blocking=False)
        del temporary  # a cudaFree: the copy has arrived when it returns
        world.Sendrecv(out[:n], other, 0, back[:n], other, 0)
        block.set(back[:n], stream=stream)
        wrong += not bool((block == 1000 * i + other).all())
        del block
print(f"rank {rank}, through the host: {wrong} wrong")

direct = world.allreduce(int(takes_device_memory())) == 2
wrong = 0
for i in range(20 if direct else 0):
    n = 1000 + 23456 * i
    block, incoming, temporary = (cupy.empty(n, numpy.int64) for _ in range(3))
    spin((8,), (256,), (block, numpy.int32(n), numpy.int64(7000 * i + rank)))
    del temporary
    world.Sendrecv(block, other, 1, incoming, other, 1)
    wrong += not bool((incoming == 7000 * i + other).all())
    world.Barrier()
print(f"rank {rank}, device memory: {f'{wrong} wrong' if direct else 'not taken by this MPI'}")
