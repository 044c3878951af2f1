"""cachealloc from the inside: what a Python program may ask of the library that it runs under.

Start the program with ``cachealloc run -- python train.py``. Then::

    import cachealloc

    with cachealloc.record("step.pickle"):
        train_step()
    print(cachealloc.stats()["devices"]["0"]["allocated_bytes.all.peak"])

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
    "set_limit",
    "snapshot",
    "stats",
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


@contextmanager
def record(
    path: Optional[_Path] = None,
    *,
    context: str = "all",
    stacks: str = "all",
    max_entries: int = 1_000_000,
    device: Optional[int] = None,
) -> Iterator[None]:
    """Records every allocation and free of the ``with`` block, and writes a snapshot at its end.

    path:        the file, as for `snapshot`.
    context:     which entries have a stack: "none", "state" (live blocks), "alloc" (allocations too), "all" (frees).
    stacks:      which frames a stack has: "python", "native" or "all".
    max_entries: how many entries are kept for each context; the oldest are dropped first.
    device:      the only device that is recorded; None for all.

    The snapshot is written after an exception too. One block at a time: the recording is the whole process's. What was
    recorded before is forgotten. Afterwards it is recorded as before the block, from nothing.
    """
    begin = function("cachealloc_record_memory_history")
    if max_entries < 1:
        raise ValueError("max_entries must be 1 or more")
    if not _RECORDING.acquire(blocking=False):
        raise Error("another block of record() is recording already: the recording is the whole process's")
    try:
        before = _recording()
        reasons = {
            errno.EINVAL: f"context={context!r} or stacks={stacks!r} is none of the words that are allowed",
            errno.ENODEV: f"there is no CUDA device {device}, or CUDA has not started",
        }
        wanted = _Recording("all", context, stacks, max_entries, device)
        check(begin(*wanted.arguments()), "nothing is recorded", reasons)
        try:
            yield
        finally:
            try:
                snapshot(path)
            finally:
                check(begin(*before.arguments()), "the recording is not as it was before")
    finally:
        _RECORDING.release()


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
