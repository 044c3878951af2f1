# CuPy without its memory pool: every array is a cudaMalloc and a cudaFree.
#
# needs: cupy
import cupy
import numpy

cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)

generator = numpy.random.default_rng(0)
wrong = 0
for i in range(60):
    n = 1000 + 777 * i
    host = generator.integers(0, 1000, n)
    device = cupy.asarray(host)
    wrong += int(device.sum()) != int(host.sum())
    wrong += not numpy.array_equal(cupy.asnumpy(cupy.sort(device)), numpy.sort(host))
    wrong += not numpy.array_equal(cupy.asnumpy(cupy.cumsum(device)), numpy.cumsum(host))
    wrong += not numpy.array_equal(cupy.asnumpy(cupy.unique(device)), numpy.unique(host))
    wrong += not numpy.array_equal(cupy.asnumpy(device[device > 500] * 2 + 1), host[host > 500] * 2 + 1)
print(f"integers: {wrong} wrong")

a = generator.integers(-4, 5, (300, 200)).astype(numpy.float64)
b = generator.integers(-4, 5, (200, 250)).astype(numpy.float64)
exact = all(
    numpy.array_equal(cupy.asnumpy(cupy.asarray(a) @ cupy.asarray(b)), a @ b) for _ in range(20)
)
print(f"matrix products exact: {exact}")

streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
results = []
for i in range(40):
    with streams[i % 4]:
        x = cupy.arange(50000 + i, dtype=cupy.int64)
        results.append(int((x * x % 97).sum()))
print(f"streams: {sum(results)}")

signal = cupy.asarray(generator.standard_normal(4096))
back = cupy.fft.ifft(cupy.fft.fft(signal)).real
print(f"fft round trip: {bool(cupy.allclose(back, signal))}")
