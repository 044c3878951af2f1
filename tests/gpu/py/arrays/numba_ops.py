# Numba: kernels, device, pinned, mapped and managed arrays, streams, its own deferred deallocation, a closed context.
#
# needs: numba
import os
import sys
import warnings

warnings.simplefilter("ignore")
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
import numpy

# Numba's CUDA target names a function that NumPy has dropped.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

try:
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError("it sees no device")
    cuda.to_device(numpy.zeros(1)).copy_to_host()
except Exception as error:
    print(f"skipped: Numba's CUDA target: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    sys.exit(0)


@cuda.jit
def scale(x, out, factor):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * factor + 1


@cuda.jit
def block_sum(x, out):
    shared = cuda.shared.array(256, numpy.int64)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    shared[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    s = 128
    while s > 0:
        if t < s:
            shared[t] += shared[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        cuda.atomic.add(out, 0, shared[0])


generator = numpy.random.default_rng(0)
wrong = 0
for i in range(80):  # device arrays come and go
    host = generator.integers(-1000, 1000, 1000 + 913 * i)
    x = cuda.to_device(host)
    y = cuda.device_array_like(x)
    total = cuda.to_device(numpy.zeros(1, numpy.int64))
    blocks = (host.size + 255) // 256
    scale[blocks, 256](x, y, i)
    block_sum[blocks, 256](y, total)
    del x
    wrong += int(total.copy_to_host()[0]) != int((host * i + 1).sum())
    wrong += not numpy.array_equal(y.copy_to_host(), host * i + 1)
print(f"device arrays: {wrong} wrong")

streams = [cuda.stream() for _ in range(4)]
wrong = 0
kept = []
for i in range(60):  # asynchronous copies through pinned memory, a stream each
    stream = streams[i % 4]
    host = cuda.pinned_array(4096 + 512 * i, numpy.int64)
    back = cuda.pinned_array(host.size, numpy.int64)
    host[:] = i
    x = cuda.to_device(host, stream=stream)
    y = cuda.device_array(host.size, numpy.int64, stream=stream)
    scale[(host.size + 255) // 256, 256, stream](x, y, 3)
    y.copy_to_host(back, stream=stream)
    kept.append((stream, host, back, 3 * i + 1))
    if len(kept) == 4:
        for stream, _, back, value in kept:
            stream.synchronize()
            wrong += not (back == value).all()
        kept.clear()
print(f"streams: {wrong} wrong")

wrong = 0
with cuda.defer_cleanup():  # nothing is freed inside; all of it at once at the end
    for i in range(40):
        x = cuda.to_device(numpy.full(50000, i))
        y = cuda.device_array_like(x)
        scale[200, 256](x, y, 2)
        wrong += not (y.copy_to_host() == 2 * i + 1).all()
        del x, y
print(f"deferred deallocation: {wrong} wrong")

wrong = 0
for i in range(10):
    mapped = cuda.mapped_array(10000, numpy.int64)
    mapped[:] = i
    out = cuda.device_array(10000, numpy.int64)
    scale[40, 256](mapped, out, 5)
    scale[40, 256](out, mapped, 1)  # the host looks after this free
    del out
    cuda.synchronize()
    wrong += not (mapped == 5 * i + 2).all()
    managed = cuda.managed_array(10000, numpy.int64)
    managed[:] = i
    scale[40, 256](managed, managed, 7)
    cuda.synchronize()
    wrong += not (managed == 7 * i + 1).all()
print(f"mapped and managed arrays: {wrong} wrong")

event = [cuda.event(), cuda.event()]
event[0].record()
scale[40, 256](cuda.to_device(numpy.arange(10000)), cuda.device_array(10000, numpy.int64), 1)
event[1].record()
event[1].synchronize()
print("elapsed time is positive:", cuda.event_elapsed_time(*event) > 0)

view = cuda.to_device(numpy.arange(100000).reshape(100, 1000))
print("slices:", int(view[10:20, ::7].copy_to_host().sum()), int(view[:, 3].copy_to_host().sum()))

try:
    cuda.device_array(1 << 42, numpy.uint8)
    print("4 TiB: allocated")
except Exception as error:
    print("4 TiB:", type(error).__name__)
x = cuda.to_device(numpy.arange(1000))
print("after it:", int(x.copy_to_host().sum()))

del x, view, total, streams, kept, stream, event, mapped, managed, host, back
try:
    cuda.close()  # the context with all its memory; the next use makes another

    @cuda.jit
    def halve(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] // 2

    x = cuda.to_device(numpy.arange(5000))
    y = cuda.device_array_like(x)
    halve[20, 256](x, y)
    print("after a closed context:", int(y.copy_to_host().sum()))
except Exception as error:
    print("after a closed context:", type(error).__name__)
