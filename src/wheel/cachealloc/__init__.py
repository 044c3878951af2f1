"""Functions for Python programs that run under cachealloc.

Start the program with ``cachealloc run -- python train.py``. Then::

    import cachealloc

    with cachealloc.record("step.pickle"):
        train_step()
    print(cachealloc.stats()["devices"]["0"]["allocated_bytes.all.peak"])

In a notebook, `start` and `stop` replace the ``with`` block for a recording that spans several cells.

All functions cover the device memory of the whole process, whichever library allocates it. If the library is not
preloaded, they raise `NotLoaded`; `is_loaded` checks that. They may be called from any thread.
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
    "stat",
    "stats",
    "stop",
    "trim",
]

_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_RECORDING = threading.Lock()


def library() -> str:
    """Returns the absolute path of the library in this package, for ``LD_PRELOAD``."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcachealloc.so")
    if not os.path.isfile(path):
        raise Error(f"{path} does not exist: this package was not installed from its wheel")
    return path


def snapshot(path: Optional[_Path] = None) -> None:
    """Writes a snapshot of all device memory now, in the format of PyTorch's memory viewer.

    An existing file of this name is replaced atomically. Without a name, the option ``snapshot`` determines it. The
    snapshot contains stacks and history if something is recorded: by `record`, or by ``CACHEALLOC_CONF=record:all``.
    """
    write = function("cachealloc_snapshot")
    # Made absolute here, because the library may have another working directory than this thread.
    name = None if path is None else os.path.abspath(os.fsencode(path))
    if name is not None and b"\0" in name:
        raise ValueError("embedded null byte in the name of the snapshot")
    check(write(name), "cannot write a snapshot", file=None if name is None else os.fsdecode(name))


class _Recording(NamedTuple):
    record: str
    context: str
    stacks: str
    max_entries: int
    device: Optional[int]

    def arguments(self) -> Tuple[bytes, bytes, bytes, int, int, int]:
        """Arguments of cachealloc_record_memory_history, which drops everything recorded so far."""
        device = -1 if self.device is None else self.device
        entries = min(self.max_entries, 2**64 - 1)
        return self.record.encode(), self.context.encode(), self.stacks.encode(), entries, device, 1


def _recording() -> _Recording:
    try:
        now = stats()["recording"]
    except Error:  # the call that begins reports the reason
        now = None
    if now is None:
        return _Recording("off", "all", "all", 1_000_000, None)
    return _Recording(*(now[name] for name in _Recording._fields))


# The settings before the current recording: set by `start`, until `stop`.
_BEFORE: Optional[_Recording] = None


def _begin(wanted: _Recording) -> _Recording:
    """Begins to record, if this module does not record yet. Returns the previous settings."""
    begin = function("cachealloc_record_memory_history")
    if wanted.max_entries < 1:
        raise ValueError("max_entries must be 1 or more")
    if wanted.record not in ("all", "state"):
        raise ValueError(f"enabled={wanted.record!r} is neither 'all' nor 'state'")
    if not _RECORDING.acquire(blocking=False):
        raise Error("record() or start() is recording already: a process has only one recording")
    try:
        before = _recording()
        reasons = {
            errno.EINVAL: f"context={wanted.context!r} or stacks={wanted.stacks!r} is not an allowed value",
            errno.ENODEV: f"there is no CUDA device {wanted.device}, or CUDA has not started",
        }
        check(begin(*wanted.arguments()), "cannot start recording", reasons)
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
            check(begin(*before.arguments()), "cannot restore the previous recording")
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
    enabled:     "all", or "state" for the stacks of live blocks only, without a history.
    context:     entries that get a stack: "none", "state" (live blocks), "alloc" (all allocations), "all" (frees too).
    stacks:      frames that a stack contains: "python", "native" or "all".
    max_entries: maximum entries kept for each context; the oldest are dropped first. A free takes two.
    device:      the only device to record; None for all.

    The snapshot is also written after an exception. Only one block can be active in the process. Everything recorded
    before is dropped. After the block, the previous settings are restored, with an empty history.
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
    """Records until `stop`, like a block of `record`, for example over the cells of a notebook."""
    global _BEFORE
    _BEFORE = _begin(_Recording(enabled, context, stacks, max_entries, device))


def stop(path: Optional[_Path] = None) -> None:
    """Writes a snapshot of everything recorded since `start`, and restores the previous settings.

    path: the file, as for `snapshot`.
    """
    global _BEFORE
    before, _BEFORE = _BEFORE, None
    if before is None:
        raise Error("nothing to stop: start() was not called")
    _end(before, path)


@contextmanager
def range(name: str) -> Iterator[None]:
    """Names the phase of the program that this thread is in, for allocations and frees in the ``with`` block.

    Ranges nest: "step/forward". ``cachealloc top-sites --group range`` lists the allocations of each. If the library is
    not loaded, or nothing is recorded, this does nothing.
    """
    text = name.encode()
    if b"\0" in text:
        raise ValueError("embedded null byte in the name of the range")
    if not is_loaded():
        yield
        return
    check(function("cachealloc_range_push")(text), "cannot enter the range")
    try:
        yield
    finally:
        function("cachealloc_range_pop")()


def stats() -> Dict[str, Any]:
    """Returns all statistics, as ``cachealloc stats PID --json`` prints them.

    "devices" contains, by device number, the statistics of ``torch.cuda.memory_stats`` under the same names. Other keys
    are the hit rate, driver calls and waits with their times, and the memory by library if something is recorded.
    """
    write = function("cachealloc_stats")
    size = write(None, 0)
    while size:
        text = ctypes.create_string_buffer(size)
        needed = write(text, size)
        if needed and needed <= size:
            answer: Dict[str, Any] = json.loads(text.value.decode())
            return answer
        size = needed  # it has grown since
    raise Error("cannot read statistics: the library is off in this process, or was busy for too long")


def stat(key: str, device: int = 0) -> int:
    """Returns one number of a device, which takes less time than `stats`: ``stat("allocated_bytes.all.peak")``.

    key: a name of ``torch.cuda.memory_stats``. Raises `KeyError` if there is no such number.
    """
    value = ctypes.c_int64()
    code = function("cachealloc_stat")(device, key.encode(), ctypes.byref(value))
    if code == errno.ENOENT:
        raise KeyError(key)
    reasons = {errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started"}
    check(code, f"cannot read {key}", reasons)
    return value.value


def trim(device: Optional[int] = None) -> int:
    """Releases all free memory of the cache to the driver, as ``torch.cuda.empty_cache`` does for its cache.

    Waits until the driver has it, and returns the number of bytes. device: None for all.
    """
    bytes_or_error: int = function("cachealloc_trim")(-1 if device is None else device)
    reasons = {
        errno.EBUSY: "a stream of the process captures a graph",
        errno.EIO: "the driver reported an error",
    }
    check(max(-bytes_or_error, 0), "cannot trim", reasons)
    return bytes_or_error


def reset_peaks(device: Optional[int] = None) -> None:
    """Resets every peak of a device to the current value, as ``torch.cuda.reset_peak_memory_stats`` does.

    device: None for all.
    """
    reasons = {errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started"}
    reset = function("cachealloc_reset_peak_stats")
    check(reset(-1 if device is None else device), "cannot reset peaks", reasons)


def record_stream(address: int, stream: int) -> None:
    """Records that a block is used on a stream other than the one it is freed on, as ``torch.Tensor.record_stream`` does.

    address: the first address of the block: ``array.data.ptr``, ``tensor.data_ptr()``.
    stream:  the handle of a CUDA stream: ``stream.ptr``, ``stream.cuda_stream``.
    """
    reasons = {errno.EINVAL: "no block of the program begins at this address, or the stream does not exist"}
    note = function("cachealloc_record_stream")
    check(note(address, ctypes.c_void_p(stream)), "cannot record the stream", reasons)


def set_limit(limit_bytes: Optional[int], device: int = 0) -> None:
    """Limits the memory of a device that the process may hold, all libraries together. None removes the limit.

    Memory held above the limit is kept until it is freed. Requests above it fail as on a full device.
    """
    limit = function("cachealloc_set_limit")
    amount = 0 if limit_bytes is None else limit_bytes
    if not 0 <= amount < 2**64:
        raise ValueError("the limit must be a number of bytes, or None")
    reasons = {errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started"}
    check(limit(device, amount), "cannot set the limit", reasons)
