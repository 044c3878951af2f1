"""Two programs on one GPU. One has allocated and freed most of the memory, and continues with small blocks; the other
requests more than the first has left. If both are under the library, the second one asks the first. Run by
`scripts/gpu run neighbours`.

usage: neighbours.py LIBRARY
"""

import ctypes
import os
import subprocess
import sys
import time

GIB = 1 << 30
BUSY_S, PATIENCE_S = 9, 8


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        for code in (
            self.cuda.cuInit(0),
            self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self.cuda.cuCtxSetCurrent(context),
        ):
            assert code == 0, code
        self.cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
        self.cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]

    def total(self):
        total, free = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value

    def alloc(self, size):
        address = ctypes.c_uint64()
        code = self.cuda.cuMemAlloc_v2(ctypes.byref(address), size)
        return address.value if code == 0 else None

    def free(self, address):
        assert self.cuda.cuMemFree_v2(address) == 0


def large_blocks(driver):
    """Allocates and frees four fifths of the device; returns the time of the allocations, in ms."""
    count = int(driver.total() * 0.8) // (10 * GIB)
    began = time.perf_counter()
    blocks = [driver.alloc(10 * GIB) for _ in range(count)]
    took_ms = (time.perf_counter() - began) * 1e3
    assert None not in blocks
    for block in blocks:
        driver.free(block)
    return took_ms


def first():
    driver = Driver()
    taken_ms = large_blocks(driver)
    print("ready", flush=True)
    pairs, longest = 0, 0.0
    end = time.perf_counter() + BUSY_S
    while (began := time.perf_counter()) < end:
        driver.free(driver.alloc(5 << 20))
        longest = max(longest, time.perf_counter() - began)
        pairs += 1
        if pairs % 1000 == 0:
            time.sleep(0.001)
    # The other process has ended: what does it cost to allocate all of it again?
    sys.stdin.readline()
    again_ms = large_blocks(driver)
    print(f"{pairs} {longest * 1e3} {taken_ms} {again_ms}")


def second():
    driver = Driver()
    size = int(driver.total() * 0.6)
    began = time.perf_counter()
    while time.perf_counter() - began < PATIENCE_S:
        if driver.alloc(size):
            print(time.perf_counter() - began)
            return
        time.sleep(0.02)
    print("never")


def both(library, settings, asks):
    plain, under_library = dict(os.environ), dict(os.environ)
    under_library.update(LD_PRELOAD=library, CACHEALLOC_CONF=settings or "")
    start = [sys.executable, __file__]
    one = subprocess.Popen(
        start + ["first"],
        env=plain if settings is None else under_library,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert one.stdout.readline() == "ready\n"
    waited = subprocess.run(
        start + ["second"],
        env=under_library if asks else plain,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    out, _ = one.communicate("\n")
    assert one.returncode == 0, one.returncode
    return waited.stdout.strip(), [float(number) for number in out.split()]


def main(library):
    print("the second program asks for 60 % of the device, after the first freed 80 % of it")
    print(f"{'':24}{'it has it':>12}{'pairs of':>12}{'longest':>10}{'80 % at':>10}{'and again':>10}")
    print(f"{'setting':24}{'after':>12}{'the first':>12}{'pair':>10}{'first':>10}{'':>10}")
    starved = []
    for name, settings, asks, must_share in (
        ("natively", None, False, True),
        ("default, both", "", True, True),
        ("expandable, both", "expandable_segments:true", True, True),
        ("default, the first", "", False, True),
        ("idle_release_s:off", "idle_release_s:off", False, False),
        ("idle_release_s:1", "idle_release_s:1", False, True),
        ("expandable, the first", "expandable_segments:true", False, True),
    ):
        waited, (pairs, longest, taken, again) = both(library, settings, asks)
        after = waited if waited == "never" else f"{float(waited):.3f} s"
        print(
            f"{name:24}{after:>12}{pairs:>12.0f}{longest:>7.2f} ms{taken:>7.1f} ms{again:>7.1f} ms",
            flush=True,
        )
        if must_share and waited == "never":
            starved.append(name)
    if starved:
        sys.exit(f"neighbours: starved with {', '.join(starved)}")


if __name__ == "__main__":
    {"first": first, "second": second}.get(sys.argv[1], lambda: main(sys.argv[1]))()
