# CuPy's allocators one after the other (none, its pool, stream-ordered, managed), with its own kernels, libraries,
# captures, memory hooks, and out of memory.
#
# needs: cupy
import cupy
import cupyx.scipy.sparse
import numpy

generator = numpy.random.default_rng(0)
raw = cupy.RawKernel(
    r"""
extern "C" __global__ void scale(const long long *x, long long *y, int n, long long factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor + 1;
}""",
    "scale",
)
twice = cupy.ElementwiseKernel("int64 x", "int64 y", "y = 2 * x", "twice")
squares = cupy.ReductionKernel("int64 x", "int64 y", "x * x", "a + b", "y = a", "0", "squares")


def kernels():
    wrong = 0
    streams = [cupy.cuda.Stream(non_blocking=bool(i % 2)) for i in range(4)]
    for i in range(60):
        n = 1000 + 991 * i
        host = generator.integers(-500, 500, n)
        with streams[i % 4] as stream:
            x = cupy.asarray(host)
            y = cupy.empty_like(x)
            raw(((n + 255) // 256,), (256,), (x, y, numpy.int32(n), numpy.int64(i)))
            z = twice(y)
            total = squares(z)
            del x, y
            stream.synchronize()
            wrong += not numpy.array_equal(cupy.asnumpy(z, stream=stream), 2 * (host * i + 1))
            wrong += int(total) != int(((2 * (host * i + 1)) ** 2).sum())
    return f"{wrong} wrong"


def libraries():
    a = cupy.asarray(generator.integers(-3, 4, (120, 120)).astype(numpy.float64)) + 40 * cupy.eye(120)
    b = cupy.asarray(generator.integers(-3, 4, (120, 5)).astype(numpy.float64))
    signal = cupy.asarray(generator.standard_normal(8192))
    sparse = cupyx.scipy.sparse.csr_matrix(cupy.where(a > 1, a, 0))
    return [
        bool(cupy.allclose(a @ cupy.linalg.solve(a, b), b)),
        bool(cupy.allclose(cupy.linalg.inv(a) @ a, cupy.eye(120))),
        round(float(cupy.linalg.svd(a, compute_uv=False)[0]), 6),
        bool(cupy.allclose(cupy.fft.irfft(cupy.fft.rfft(signal)), signal)),
        bool(cupy.allclose(sparse @ b, sparse.toarray() @ b)),
        bool(cupy.allclose((sparse @ sparse).toarray(), sparse.toarray() @ sparse.toarray())),
        int(cupy.sort(cupy.asarray(generator.integers(0, 10**6, 50000)))[::1000].sum()),
        int(cupy.argsort(cupy.asarray(generator.permutation(30000)))[:100].sum()),
    ]


def random():
    cupy.random.seed(7)
    return [round(float(cupy.random.standard_normal(100000).sum()), 3), int(cupy.random.randint(0, 100, 10000).sum())]


def pinned():
    wrong = 0
    stream = cupy.cuda.Stream(non_blocking=True)
    for i in range(30):
        memory = cupy.cuda.alloc_pinned_memory(8 * 20000)
        host = numpy.frombuffer(memory, numpy.int64, 20000)
        host[:] = i
        with stream:
            device = cupy.empty(20000, numpy.int64)
            device.set(host, stream=stream)
            device += 1
            device.get(stream=stream, out=host, blocking=False)
            del device
        stream.synchronize()
        wrong += not (host == i + 1).all()
    return f"{wrong} wrong"


def too_much():
    try:
        cupy.empty(1 << 42, numpy.uint8)
        return "allocated"
    except cupy.cuda.memory.OutOfMemoryError:
        return "OutOfMemoryError", int(cupy.arange(1000).sum())


def capture():
    x, y = cupy.zeros(1000, numpy.int64), cupy.zeros(1000, numpy.int64)
    arguments = (x, y, numpy.int32(1000), numpy.int64(3))
    raw((4,), (256,), arguments)
    # This runs on a stream that waits for no other stream.
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        raw((4,), (256,), arguments)
        raw((4,), (256,), (y, x, numpy.int32(1000), numpy.int64(1)))
        graph = stream.end_capture()
        for _ in range(5):
            graph.launch(stream)
        stream.synchronize()
        total = int(x.sum())
    return total


class Counter(cupy.cuda.MemoryHook):
    name = "Counter"

    def __init__(self):
        self.counts = {"alloc": 0, "malloc": 0, "free": 0}

    def alloc_postprocess(self, **_):
        self.counts["alloc"] += 1

    def malloc_postprocess(self, **_):
        self.counts["malloc"] += 1

    def free_postprocess(self, **_):
        self.counts["free"] += 1


def hooks(pool):
    pool.free_all_blocks()
    with Counter() as counter:
        for i in range(20):
            x = cupy.arange(1000 * (i % 5 + 1))
            del x
    pool.free_all_blocks()
    return counter.counts


CASES = [kernels, libraries, random, pinned, too_much]
pool = cupy.cuda.MemoryPool()
allocators = {
    "none": None,
    "pool": pool.malloc,
    "stream-ordered": cupy.cuda.MemoryAsyncPool().malloc,
    "managed": cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc,
}
for allocator, function in allocators.items():
    cupy.cuda.set_allocator(function)
    for case in CASES:
        if allocator == "managed" and case is too_much:
            continue  # managed memory may be larger than the device, which should not be tried
        try:
            print(f"{allocator}: {case.__name__}: {case()}", flush=True)
        except Exception as error:
            print(f"{allocator}: {case.__name__}: {type(error).__name__}", flush=True)
    if allocator == "pool":
        print(f"{allocator}: hooks: {hooks(pool)}")
        print(f"{allocator}: capture: {capture()}")
        print(f"{allocator}: left {pool.used_bytes()} used, {pool.n_free_blocks()} free blocks")
