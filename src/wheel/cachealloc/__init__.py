"""cachealloc from the inside: what a Python program may ask of the library that it runs under.

Start the program with ``cachealloc run -- python train.py``. Then::

    import cachealloc

    with cachealloc.record("step.pickle"):
        train_step()
    print(cachealloc.stats()["devices"]["0"]["allocated_bytes.all.peak"])

In a notebook, where a recording is to last over several cells, `start` and `stop` do what the ``with`` block does.

Everything covers the device memory of the whole process, whichever library allocates it. Where the library is not
preloaded, `NotLoaded` is raised; `is_loaded` tells beforehand. The functions may be called from any thread.
"""

import ctypes
import errno
import json
import os
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple, Union

from ._hooks import MemoryHook
from ._library import Error, Failed, NotLoaded, TooOld, check, function, is_loaded

__version__ = "0.1.0"

__all__ = [
    "Error",
    "Failed",
    "MemoryHook",
    "NotLoaded",
    "TooOld",
    "is_loaded",
    "library",
    "range",
    "record",
    "record_stream",
    "reset_peaks",
    "set_limit",
    "snapshot",
    "start",
    "stats",
    "stop",
    "trim",
]

_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_RECORDING = threading.Lock()


def library() -> str:
    """The absolute path of the library that came with this package, for ``LD_PRELOAD``."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcachealloc.so")
    if not os.path.isfile(path):
        raise Error(f"{path} does not exist: this package was not installed from its wheel")
    return path


def snapshot(path: Optional[_Path] = None) -> None:
    """Writes a snapshot of all device memory now, in the format of PyTorch's memory viewer.

    An existing file of this name is replaced, whole or not at all. Without a name the option ``snapshot`` makes one.
    The snapshot has stacks and history where something is recorded: `record`, or ``CACHEALLOC_CONF=record:all``.
    """
    write = function("cachealloc_snapshot")
    # Made absolute here: what a relative path is relative to is this thread's business, not the library's.
    name = None if path is None else os.path.abspath(os.fsencode(path))
    if name is not None and b"\0" in name:
        raise ValueError("embedded null byte in the name of the snapshot")
    check(write(name), "no snapshot", file=None if name is None else os.fsdecode(name))


class _Recording(NamedTuple):
    record: str
    context: str
    stacks: str
    max_entries: int
    device: Optional[int]

    def arguments(self) -> Tuple[bytes, bytes, bytes, int, int, int]:
        """Of cachealloc_record_memory_history, which forgets what was recorded so far."""
        device = -1 if self.device is None else self.device
        entries = min(self.max_entries, 2**64 - 1)
        return self.record.encode(), self.context.encode(), self.stacks.encode(), entries, device, 1


def _recording() -> _Recording:
    try:
        now = stats()["recording"]
    except Error:  # the call that begins will say why
        now = None
    if now is None:
        return _Recording("off", "all", "all", 1_000_000, None)
    return _Recording(*(now[name] for name in _Recording._fields))


# What was recorded before the recording that is going on: of `start`, until its `stop`.
_BEFORE: Optional[_Recording] = None


def _begin(wanted: _Recording) -> _Recording:
    """Records so, if nothing of this module records already. Returns what was recorded before."""
    begin = function("cachealloc_record_memory_history")
    if wanted.max_entries < 1:
        raise ValueError("max_entries must be 1 or more")
    if wanted.record not in ("all", "state"):
        raise ValueError(f"enabled={wanted.record!r} is neither 'all' nor 'state'")
    if not _RECORDING.acquire(blocking=False):
        raise Error("record() or start() is recording already: the recording is the whole process's")
    try:
        before = _recording()
        reasons = {
            errno.EINVAL: f"context={wanted.context!r} or stacks={wanted.stacks!r} is none of the words that are allowed",
            errno.ENODEV: f"there is no CUDA device {wanted.device}, or CUDA has not started",
        }
        check(begin(*wanted.arguments()), "nothing is recorded", reasons)
        return before
    except BaseException:
        _RECORDING.release()
        raise


def _end(before: _Recording, path: Optional[_Path]) -> None:
    try:
        try:
            snapshot(path)
        finally:
            begin = function("cachealloc_record_memory_history")
            check(begin(*before.arguments()), "the recording is not as it was before")
    finally:
        _RECORDING.release()


@contextmanager
def record(
    path: Optional[_Path] = None,
    *,
    enabled: str = "all",
    context: str = "all",
    stacks: str = "all",
    max_entries: int = 1_000_000,
    device: Optional[int] = None,
) -> Iterator[None]:
    """Records every allocation and free of the ``with`` block, and writes a snapshot at its end.

    path:        the file, as for `snapshot`.
    enabled:     "all", or "state": only where live blocks came from, without a history.
    context:     which entries have a stack: "none", "state" (live blocks), "alloc" (allocations too), "all" (frees).
    stacks:      frames that a stack contains: "python", "native" or "all".
    max_entries: how many entries are kept for each context; the oldest are dropped first. A free takes two.
    device:      the only device that is recorded; None for all.

    The snapshot is written after an exception too. One block at a time: the recording is the whole process's. What was
    recorded before is forgotten. Afterwards it is recorded as before the block, from nothing.
    """
    before = _begin(_Recording(enabled, context, stacks, max_entries, device))
    try:
        yield
    finally:
        _end(before, path)


def start(
    *,
    enabled: str = "all",
    context: str = "all",
    stacks: str = "all",
    max_entries: int = 1_000_000,
    device: Optional[int] = None,
) -> None:
    """Records from here to `stop`, as a block of `record` does: over the cells of a notebook, say."""
    global _BEFORE
    _BEFORE = _begin(_Recording(enabled, context, stacks, max_entries, device))


def stop(path: Optional[_Path] = None) -> None:
    """Writes a snapshot of what was recorded since `start`, and records as before it.

    path: the file, as for `snapshot`.
    """
    global _BEFORE
    before, _BEFORE = _BEFORE, None
    if before is None:
        raise Error("nothing to stop: start() was not called")
    _end(before, path)


@contextmanager
def range(name: str) -> Iterator[None]:
    """Says which phase of the program this thread is in: what it allocates in the ``with`` block has the name in the history.

    Ranges nest: "step/forward". ``cachealloc top-sites --group range`` shows what was allocated in each. Where the library
    is not loaded, or nothing is recorded, nothing is done.
    """
    text = name.encode()
    if b"\0" in text:
        raise ValueError("embedded null byte in the name of the range")
    if not is_loaded():
        yield
        return
    check(function("cachealloc_range_push")(text), "no range")
    try:
        yield
    finally:
        function("cachealloc_range_pop")()


def stats() -> Dict[str, Any]:
    """All statistics, as ``cachealloc stats PID --json`` prints them.

    Under "devices", by the number of each, those of ``torch.cuda.memory_stats``, under its names; beside them the hit
    rate, driver calls and waits with the time spent in them, and the memory by library where something is recorded.
    """
    write = function("cachealloc_stats")
    size = write(None, 0)
    while size:
        text = ctypes.create_string_buffer(size)
        needed = write(text, size)
        if needed and needed <= size:
            answer: Dict[str, Any] = json.loads(text.value.decode())
            return answer
        size = needed  # grown since it was asked
    raise Error("no statistics: the library is off in this process, or was busy for too long")


def trim(device: Optional[int] = None) -> int:
    """Gives all memory that is free in the cache back to the driver, as ``torch.cuda.empty_cache`` does for its own.

    Waits until it is there, and returns how many bytes that were. device: None for all.
    """
    bytes_or_error: int = function("cachealloc_trim")(-1 if device is None else device)
    reasons = {
        errno.EBUSY: "a stream of the process captures a graph",
        errno.EIO: "the driver reported an error",
    }
    check(max(-bytes_or_error, 0), "nothing is trimmed", reasons)
    return bytes_or_error


def reset_peaks(device: Optional[int] = None) -> None:
    """Makes every peak of a device its present value, as ``torch.cuda.reset_peak_memory_stats``. device: None for all."""
    reasons = {errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started"}
    reset = function("cachealloc_reset_peak_stats")
    check(reset(-1 if device is None else device), "no peak is reset", reasons)


def record_stream(address: int, stream: int) -> None:
    """Says that a block is used on a stream besides the one that it is freed on, as ``torch.Tensor.record_stream`` does.

    address: where the block begins: ``array.data.ptr``, ``tensor.data_ptr()``.
    stream:  the handle of a CUDA stream: ``stream.ptr``, ``stream.cuda_stream``.
    """
    reasons = {errno.EINVAL: "no block that the program holds begins there, or there is no such stream"}
    note = function("cachealloc_record_stream")
    check(note(address, ctypes.c_void_p(stream)), "no stream is recorded", reasons)


def set_limit(limit_bytes: Optional[int], device: int = 0) -> None:
    """Limits what the process may hold of a device from now on, all libraries together. None: no limit.

    What is held above it stays until it is freed. A request above it fails as on a device that is full.
    """
    limit = function("cachealloc_set_limit")
    amount = 0 if limit_bytes is None else limit_bytes
    if not 0 <= amount < 2**64:
        raise ValueError("the limit must be a number of bytes, or None")
    reasons = {errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started"}
    check(limit(device, amount), "no limit is set", reasons)
