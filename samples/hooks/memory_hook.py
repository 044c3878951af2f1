#!/usr/bin/env python3
"""Memory hooks in Python, by ctypes: derive from MemoryHook, implement the methods of interest, use it in a with block.

    LD_PRELOAD=/path/to/libcachealloc.so python3 memory_hook.py

The methods have the names and arguments of CuPy's MemoryHook, so a hook written for CuPy's own pool here receives the calls
of every library of the process. A hook belongs to the thread that enters the block. Exceptions of a method are printed by
ctypes, and the program continues. Without the library the block does nothing.
"""

import ctypes

POINTER, INT, SIZE, U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64

CALLBACKS = [
    ("alloc_preprocess", [("device_id", INT), ("mem_size", SIZE)]),
    ("alloc_postprocess", [("device_id", INT), ("mem_size", SIZE), ("mem_ptr", U64)]),
    ("malloc_preprocess", [("device_id", INT), ("size", SIZE), ("mem_size", SIZE)]),
    (
        "malloc_postprocess",
        [("device_id", INT), ("size", SIZE), ("mem_size", SIZE), ("mem_ptr", U64), ("pmem_id", U64)],
    ),
    ("free_preprocess", [("device_id", INT), ("mem_size", SIZE), ("mem_ptr", U64), ("pmem_id", U64)]),
    ("free_postprocess", [("device_id", INT), ("mem_size", SIZE), ("mem_ptr", U64), ("pmem_id", U64)]),
]
TYPES = {name: ctypes.CFUNCTYPE(None, POINTER, *(kind for _, kind in arguments)) for name, arguments in CALLBACKS}


class Table(ctypes.Structure):
    """struct cachealloc_hook."""

    _fields_ = [("size", SIZE), ("name", ctypes.c_char_p), ("data", POINTER)] + list(TYPES.items())


class MemoryHook:
    name = "MemoryHook"

    def __enter__(self):
        self._table = table = Table(ctypes.sizeof(Table), self.name.encode())
        for name, arguments in CALLBACKS:
            method = getattr(self, name, None)
            if method:
                setattr(table, name, TYPES[name](self._call(method, [argument for argument, _ in arguments])))
        process = ctypes.CDLL(None)
        self._pushed = hasattr(process, "cachealloc_hook_push") and not process.cachealloc_hook_push(ctypes.byref(table))
        return self

    def __exit__(self, *_):
        if self._pushed:
            ctypes.CDLL(None).cachealloc_hook_pop(ctypes.byref(self._table))

    @staticmethod
    def _call(method, names):
        return lambda _data, *values: method(**dict(zip(names, values)))


class Prints(MemoryHook):
    """Prints the memory that the program takes, and what the cache takes from the driver for it."""

    name = "Prints"

    def alloc_postprocess(self, *, device_id, mem_size, mem_ptr):
        print("alloc ", mem_size)

    def malloc_postprocess(self, *, device_id, size, mem_size, mem_ptr, pmem_id):
        print("malloc", size, mem_size)

    def free_postprocess(self, *, device_id, mem_size, mem_ptr, pmem_id):
        print("free  ", mem_size)


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = POINTER(), U64()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    with Prints():
        for size in (1000, 5000):
            assert driver.cuMemAlloc_v2(ctypes.byref(address), SIZE(size)) == 0
            assert driver.cuMemFree_v2(address) == 0


if __name__ == "__main__":
    main()
