# The same requests through PyTorch's allocator and through the library: after every step both must have reserved as many
# bytes in as many segments, and count the same. usage: differential.py LIBRARY [STEPS [SEED]]
#
# needs: torch
#
# Each side is a separate process, started by this one: `differential.py --torch|--library SETTINGS STEPS SEED` prints
# one line a step. PyTorch's runs without the library, the library's without PyTorch.
import ctypes
import os
import random
import subprocess
import sys

POOLS = ("all", "small_pool", "large_pool")
NAMES = ("reserved_bytes", "segment", "allocated_bytes", "allocation", "active_bytes", "requested_bytes",
         "inactive_split", "inactive_split_bytes")
KEYS = [(name, pool) for name in NAMES for pool in POOLS]
KIB, MIB = 1 << 10, 1 << 20

# The settings, and for PyTorch the share of the device that the process may use.
SETTINGS = [
    ("", 1.0),
    ("max_split_size_mb:40", 1.0),
    ("max_split_size_mb:64,max_non_split_rounding_mb:24", 1.0),
    ("roundup_power2_divisions:4", 1.0),
    ("roundup_power2_divisions:[64:8,128:4,>:1]", 1.0),
    ("garbage_collection_threshold:0.5", 0.01),
    ("garbage_collection_threshold:0.8,max_split_size_mb:40", 0.01),
]


def requests(steps, seed):
    """Yields steps: (True, number, bytes) allocates, (False, number, 0) frees."""
    chance, live, number = random.Random(seed), [], 0
    for _ in range(steps):
        if live and (chance.random() < 0.47 or len(live) > 120):
            yield False, live.pop(chance.randrange(len(live))), 0
        else:
            most = chance.choice([4 * KIB, 200 * KIB, 2 * MIB, 9 * MIB, 30 * MIB, 90 * MIB])
            yield True, number, 1 + chance.randrange(most)
            live.append(number)
            number += 1


def with_torch(settings, share, steps, seed):
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
    import torch

    torch.cuda.init()
    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share)
    held = {}
    for allocates, number, size in requests(steps, seed):
        failed = False
        if allocates:
            try:
                held[number] = torch.cuda.caching_allocator_alloc(size, 0, 0)
            except torch.cuda.OutOfMemoryError:
                failed = True
        elif number in held:
            torch.cuda.caching_allocator_delete(held.pop(number))
        stats = torch._C._cuda_memoryStats(0)
        print(int(failed), *(stats[name][pool]["current"] for name, pool in KEYS))


def with_library(steps, seed):
    driver, process = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
    stat = process.cachealloc_stat
    context, pointer, value = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int64()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    keys = [f"{name}.{pool}.current".encode() for name, pool in KEYS]
    held = {}
    for allocates, number, size in requests(steps, seed):
        failed = False
        if allocates:
            code = driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
            assert code in (0, 2), code
            failed = code != 0
            if not failed:
                held[number] = pointer.value
        elif number in held:
            assert driver.cuMemFree_v2(ctypes.c_uint64(held.pop(number))) == 0
        values = []
        for key in keys:
            code = stat(0, key, ctypes.byref(value))
            assert code == 0, (key, code)
            values.append(value.value)
        print(int(failed), *values)


def side(arguments, **variables):
    command = [sys.executable, os.path.abspath(__file__), *map(str, arguments)]
    ran = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stderr}")
    return [list(map(int, line.split())) for line in ran.stdout.splitlines()]


def compare(library, settings, share, steps, seed):
    torchs = side(["--torch", settings, share, steps, seed])
    ours = side(["--library", settings, share, steps, seed], LD_PRELOAD=os.path.abspath(library),
                CACHEALLOC_CONF=f"{settings},per_process_memory_fraction:{share},log:quiet".lstrip(","))
    heads = ["failed", *(f"{name}.{pool}" for name, pool in KEYS)]
    name = settings or "defaults"
    for step, (left, right) in enumerate(zip(torchs, ours)):
        if left != right:
            different = [(head, a, b) for head, a, b in zip(heads, left, right) if a != b]
            same = sum(a == b for a, b in zip(torchs, ours))
            print(f"{name}: first different at step {step} of {steps}, {same} steps the same; (PyTorch, ours):")
            for head, a, b in different:
                print(f"    {head}: {a} {b}")
            return False
    failures = sum(line[0] for line in ours)
    peak = max(line[1] for line in ours) / MIB
    print(f"{name}: {len(ours)} steps the same, {failures} requests failed, peak reserved {peak:.0f} MiB")
    return len(ours) == len(torchs) == steps


def main():
    if sys.argv[1] == "--torch":
        return with_torch(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    if sys.argv[1] == "--library":
        return with_library(int(sys.argv[4]), int(sys.argv[5]))
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    same = [compare(sys.argv[1], settings, share, steps, seed) for settings, share in SETTINGS]
    sys.exit(0 if all(same) else 1)


main()
