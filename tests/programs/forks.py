"""Python's multiprocessing beside CUDA, which is called through ctypes."""

import ctypes
import multiprocessing
import sys

cuda = None


def start():
    """CUDA in this process, and its functions."""
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for code in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
    ):
        assert code == 0, code


def pairs(count):
    pointer = ctypes.c_uint64()
    for i in range(count):
        code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1000 << i % 12))
        assert code == 0, code
        code = cuda.cuMemFree_v2(pointer)
        assert code == 0, code


def work(number):
    """A worker that starts CUDA itself."""
    if cuda is None:
        start()
    pairs(50)
    return number * number


def work_without_cuda(number):
    return sum(range(number))


def ask(_):
    """A worker forked from a process that had started CUDA: the driver's own answers."""
    pointer = ctypes.c_uint64()
    allocated = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1000))
    return allocated, cuda.cuCtxSynchronize()


def main():
    way, method = sys.argv[1:3]
    context = multiprocessing.get_context(method)
    if way == "after":
        start()
        pairs(50)
    with context.Pool(3) as pool:
        if way == "before" or method != "fork":
            print(pool.map(work, range(12)))
        else:
            print(set(pool.map(ask, range(12))))
        print(pool.map(work_without_cuda, range(200))[-1])
    if way == "before":
        start()
    pairs(50)
    print("the parent goes on")


if __name__ == "__main__":
    main()
