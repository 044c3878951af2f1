#!/usr/bin/env python3
"""Uses the functions of the library from Python, if it is loaded. Works in the same way with PyTorch, CuPy or JAX:

    LD_PRELOAD=/path/to/libcachealloc.so python3 05-interface.py

Needs nothing but Python; it calls CUDA through ctypes, so that no framework is needed here.
"""

import ctypes


def cachealloc():
    """The library's functions, or None."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "cachealloc_version"):
        return None
    process.cachealloc_version.restype = ctypes.c_char_p
    process.cachealloc_trim.restype = ctypes.c_int64
    return process


def start_cuda():
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    return driver


def work(driver):
    addresses = [ctypes.c_uint64() for _ in range(10)]
    for address in addresses:
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(30 << 20)) == 0
    for address in addresses:
        assert driver.cuMemFree_v2(address) == 0


def main():
    driver = start_cuda()
    library = cachealloc()
    if library is None:
        work(driver)
        print("cachealloc is not here")
        return
    print("cachealloc", library.cachealloc_version().decode())
    library.cachealloc_record(b"all")
    work(driver)
    code = library.cachealloc_snapshot(b"interface.pickle")
    print("snapshot:", "failed" if code else "interface.pickle")
    library.cachealloc_record(b"off")
    print(library.cachealloc_trim(-1) >> 20, "MiB released")


main()
