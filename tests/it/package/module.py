"""Calls each function of the Python package, in a process that is as its argument says.

loaded: under the library, on the simulated driver; off: the same with CACHEALLOC=0; absent: without the library;
old: under one that has none of the functions.
"""

import ctypes
import errno
import json
import os
import pathlib
import pickle
import sys
import threading

import cachealloc

MIB = 1 << 20
CALLS = [
    cachealloc.snapshot,
    cachealloc.stats,
    cachealloc.trim,
    lambda: cachealloc.set_limit(MIB),
    lambda: cachealloc.record().__enter__(),
    cachealloc.start,
    cachealloc.reset_peaks,
    lambda: cachealloc.stat("num_ooms"),
    lambda: cachealloc.record_stream(4096, 0),
    lambda: cachealloc.MemoryHook().__enter__(),
]


def refused(kind, call, *words, number=None):
    try:
        call()
    except kind as error:
        assert type(error) is kind, type(error)
        assert number is None or error.errno == number, error
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"not refused: {call}")


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        assert getattr(self.library, name)(*arguments) == 0, name

    def allocate(self, size):
        address = ctypes.c_uint64()
        code = self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return None if code else address

    def free(self, address):
        self.call("cuMemFree_v2", address)

    def pair(self, size=MIB):
        self.free(self.allocate(size))


def frames(path):
    traces = pickle.loads(pathlib.Path(path).read_bytes())["device_traces"]
    return [frame["name"] for trace in traces for entry in trace for frame in entry.get("frames", [])]


def entries(path):
    return sum(len(trace) for trace in pickle.loads(pathlib.Path(path).read_bytes())["device_traces"])


def before_cuda():
    assert cachealloc.is_loaded()
    assert os.path.realpath(cachealloc.library()) == os.environ["LD_PRELOAD"].split(":")[0]
    refused(cachealloc.Failed, lambda: cachealloc.set_limit(MIB, 99), "no CUDA device 99", number=errno.ENODEV)
    refused(ValueError, lambda: cachealloc.set_limit(-1))
    refused(ValueError, lambda: cachealloc.set_limit(2**64))


def numbers(driver):
    blocks = [driver.allocate(30 * MIB) for _ in range(10)]
    stats = cachealloc.stats()
    assert stats["devices"]["0"]["allocated_bytes.all.current"] == 300 * MIB, stats["devices"]
    assert cachealloc.trim() == 0
    for block in blocks:
        driver.free(block)
    assert cachealloc.trim(0) == 300 * MIB
    assert cachealloc.stats()["devices"]["0"]["reserved_bytes.all.current"] == 0


def captures(driver):
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    driver.call("cuStreamBeginCapture_v2", stream, 0)
    refused(cachealloc.Failed, cachealloc.trim, "captures", number=errno.EBUSY)
    driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))


def limits(driver):
    cachealloc.set_limit(100 * MIB)
    assert driver.allocate(200 * MIB) is None
    cachealloc.set_limit(None)
    driver.pair(200 * MIB)


def snapshots():
    os.mkdir("below")
    os.chdir("below")
    cachealloc.snapshot("relative.pickle")
    os.chdir("..")
    cachealloc.snapshot(pathlib.Path("path.pickle"))
    cachealloc.snapshot(b"bytes.pickle")
    cachealloc.snapshot()
    for name in ("below/relative.pickle", "path.pickle", "bytes.pickle", "by-option-0.pickle"):
        assert "segments" in pickle.loads(pathlib.Path(name).read_bytes()), name
    missing = lambda: cachealloc.snapshot("no/such/folder")
    error = refused(cachealloc.Failed, missing, "cannot write a snapshot", number=errno.ENOENT)
    assert isinstance(error, OSError) and error.filename == os.path.abspath("no/such/folder"), error.filename
    refused(ValueError, lambda: cachealloc.snapshot("a\0b"))


def planted(driver):
    driver.pair()


def recordings(driver):
    with cachealloc.record("all.pickle"):
        planted(driver)
        refused(cachealloc.Error, lambda: cachealloc.record("twice").__enter__(), "already")
    assert "planted" in frames("all.pickle"), frames("all.pickle")
    assert entries("all.pickle") >= 2
    driver.pair()
    cachealloc.snapshot("off.pickle")
    assert entries("off.pickle") == 0

    try:
        with cachealloc.record("raised.pickle", stacks="native"):
            planted(driver)
            raise KeyError("the program's own")
    except KeyError:
        pass
    assert frames("raised.pickle") and "planted" not in frames("raised.pickle")

    with cachealloc.record("short.pickle", context="none", max_entries=2, device=0):
        for _ in range(9):
            planted(driver)
    assert frames("short.pickle") == [] and entries("short.pickle") == 2, entries("short.pickle")

    # A recording that was already on continues unchanged.
    settings = lambda: cachealloc.stats()["recording"]
    history = ctypes.CDLL(None).cachealloc_record_memory_history
    history(b"state", b"alloc", b"python", ctypes.c_uint64(77), 0, 1)
    before = settings()
    assert before == {"record": "state", "context": "alloc", "stacks": "python", "max_entries": 77, "device": 0}
    with cachealloc.record("inside.pickle"):
        planted(driver)
        assert settings()["record"] == "all"
    assert settings() == before
    history(b"off", None, None, ctypes.c_uint64(1), -1, 1)
    assert settings() is None

    begin = lambda **words: lambda: cachealloc.record("refused.pickle", **words).__enter__()
    refused(cachealloc.Failed, begin(context="some"), "context='some'", number=errno.EINVAL)
    refused(cachealloc.Failed, begin(device=99), "no CUDA device 99", number=errno.ENODEV)
    refused(ValueError, begin(max_entries=0))
    refused(ValueError, begin(enabled="some"))

    def lost():
        with cachealloc.record("no/such/folder"):
            planted(driver)

    refused(cachealloc.Failed, lost, number=errno.ENOENT)
    cachealloc.snapshot("off.pickle")
    assert entries("off.pickle") == 0, "recording is off although its snapshot failed"


def cells(driver):
    """Records over several cells of a notebook; an earlier recording continues."""
    refused(cachealloc.Error, cachealloc.stop, "start() was not called")
    cachealloc.start()
    refused(cachealloc.Error, cachealloc.start, "already")
    planted(driver)
    cachealloc.stop("cells.pickle")
    assert "planted" in frames("cells.pickle") and cachealloc.stats()["recording"] is None
    refused(cachealloc.Error, cachealloc.stop, "start() was not called")
    refused(cachealloc.Failed, lambda: cachealloc.start(context="some"), number=errno.EINVAL)

    with cachealloc.record("state.pickle", enabled="state"):
        held = driver.allocate(MIB)
        assert cachealloc.stats()["recording"]["record"] == "state"
    driver.free(held)
    blocks = [block for segment in pickle.loads(pathlib.Path("state.pickle").read_bytes())["segments"]
              for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert [bool(block["frames"]) for block in blocks] == [True], blocks
    assert entries("state.pickle") <= 1


def peaks_and_streams(driver):
    device = lambda: cachealloc.stats()["devices"]["0"]
    driver.pair(100 * MIB)
    assert device()["allocated_bytes.all.peak"] >= 100 * MIB
    cachealloc.reset_peaks()
    held = driver.allocate(MIB)
    assert device()["allocated_bytes.all.peak"] == device()["allocated_bytes.all.current"] == MIB
    assert cachealloc.stat("allocated_bytes.all.peak") == MIB == cachealloc.stat("allocated_bytes.all.current", 0)
    refused(KeyError, lambda: cachealloc.stat("allocated"), "allocated")
    refused(cachealloc.Failed, lambda: cachealloc.stat("num_ooms", 99), number=errno.ENODEV)
    cachealloc.reset_peaks(0)
    refused(cachealloc.Failed, lambda: cachealloc.reset_peaks(99), number=errno.ENODEV)
    stream = ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    cachealloc.record_stream(held.value, stream.value)
    refused(cachealloc.Failed, lambda: cachealloc.record_stream(held.value + 1, stream.value), number=errno.EINVAL)
    driver.free(held)


def ranges(driver):
    with cachealloc.record("ranges.pickle", context="none"):
        with cachealloc.range("step"):
            with cachealloc.range("forward"):
                driver.pair()
            try:
                with cachealloc.range("fails"):
                    raise KeyError("the program's own")
            except KeyError:
                pass
            driver.pair()
    traces = pickle.loads(pathlib.Path("ranges.pickle").read_bytes())["device_traces"]
    said = [entry["user_metadata"] for trace in traces for entry in trace if entry["action"] == "alloc"]
    assert said == ["step/forward", "step"], said
    refused(ValueError, lambda: cachealloc.range("a\0b").__enter__())


class Listens(cachealloc.MemoryHook):
    name = "Listens"

    def __init__(self):
        self.heard = []

    def alloc_postprocess(self, **told):
        self.heard.append(("alloc", sorted(told)))

    def malloc_postprocess(self, *, device_id, size, mem_size, mem_ptr, pmem_id):
        self.heard.append(("malloc", device_id, size, mem_size, mem_ptr != 0, pmem_id != 0))

    def free_preprocess(self, *, device_id, mem_size, mem_ptr, pmem_id):
        self.heard.append(("free", mem_size))


class ListensToOthers(cachealloc.MemoryHook):
    def __init__(self):
        self.heard = []

    def other_allocated(self, *, device_id, kind, size, mem_ptr, pmem_id):
        self.heard.append(("allocated", device_id, kind, size, mem_ptr, pmem_id))

    def other_freed(self, *, device_id, kind, size, mem_ptr, pmem_id):
        self.heard.append(("freed", device_id, kind, size, mem_ptr, pmem_id))


def hooks_of_other_kinds(driver):
    pinned = ctypes.c_void_p()
    with ListensToOthers() as hook:
        driver.pair(1000)
        driver.call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(5000), 0)
        driver.call("cuMemFreeHost", pinned)
    (_, *told), (_, *again) = hook.heard
    assert told == again and told[:4] == [-1, hook.PINNED, 5000, pinned.value], hook.heard
    assert [what for what, *_ in hook.heard] == ["allocated", "freed"], hook.heard


def hooks(driver):
    cachealloc.trim()
    with Listens() as hook:
        driver.pair(1000)
        refused(cachealloc.Error, hook.__enter__, "in use already")
    driver.pair(1000)
    alloc = ("alloc", ["device_id", "mem_ptr", "mem_size"])
    assert hook.heard == [alloc, ("malloc", 0, 1000, 1024, True, True), ("free", 1024)], hook.heard

    with hook:  # a second time
        driver.pair(1000)
    assert len(hook.heard) == 5, hook.heard

    class Raises(Listens):
        def free_preprocess(self, **_):
            raise KeyError("the hook's own")

    told = []
    sys.unraisablehook = told.append
    with Raises():
        driver.pair()
    sys.unraisablehook = sys.__unraisablehook__
    assert [told.exc_type for told in told] == [KeyError], told

    hook.__enter__()
    other = threading.Thread(target=lambda: refused(cachealloc.Failed, lambda: hook.__exit__(), number=errno.ENOENT))
    other.start()
    other.join()
    driver.pair(1000)
    assert len(hook.heard) == 7, "the hook stays where it was entered"
    hook.__exit__()

    # Not even one that is forgotten is collected while the library calls it.
    heard, forgotten = Listens(), Listens()
    forgotten.heard = heard.heard
    forgotten.__enter__()
    del forgotten
    import gc

    gc.collect()
    driver.pair(1000)
    assert len(heard.heard) == 2, heard.heard

    many = [Listens() for _ in range(15)]
    for one in many:
        one.__enter__()
    refused(cachealloc.Failed, hook.__enter__, "sixteen", number=errno.ENOMEM)
    many.pop().__exit__()
    with hook:
        pass


def loaded():
    before_cuda()
    driver = Driver()
    numbers(driver)
    captures(driver)
    limits(driver)
    snapshots()
    recordings(driver)
    cells(driver)
    peaks_and_streams(driver)
    ranges(driver)
    hooks(driver)
    hooks_of_other_kinds(driver)


def off():
    assert cachealloc.is_loaded()
    Driver().pair()
    with cachealloc.range("nothing"):
        pass
    for call in CALLS:
        refused(cachealloc.Error if call is cachealloc.stats else cachealloc.Failed, call, "is off in this process")


def absent():
    assert not cachealloc.is_loaded()
    with cachealloc.range("nothing"):
        pass
    for call in CALLS:
        refused(cachealloc.NotLoaded, call, "cachealloc run -- python")
    assert os.path.isfile(cachealloc.library())


def old():
    assert cachealloc.is_loaded()
    for call in CALLS:
        refused(cachealloc.TooOld, call, "version 0.0.1, which has no cachealloc_")


globals()[sys.argv[1]]()
print("fine")
