"""The functions of include/cachealloc.h in the running process, with their errors as exceptions."""

import ctypes
import errno
import os
from functools import lru_cache
from typing import Any, Dict, Optional

C_STRING, INT, SIZE, U64, I64 = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int64
POINTER = ctypes.c_void_p

# Result and argument types of each function.
_SIGNATURES: Dict[str, Any] = {
    "cachealloc_version": (C_STRING, []),
    "cachealloc_snapshot": (INT, [C_STRING]),
    "cachealloc_record": (INT, [C_STRING]),
    "cachealloc_record_memory_history": (INT, [C_STRING, C_STRING, C_STRING, U64, INT, INT]),
    "cachealloc_range_push": (INT, [C_STRING]),
    "cachealloc_range_pop": (None, []),
    "cachealloc_trim": (I64, [INT]),
    "cachealloc_set_limit": (INT, [INT, U64]),
    "cachealloc_record_stream": (INT, [U64, POINTER]),
    "cachealloc_reset_peak_stats": (INT, [INT]),
    "cachealloc_stat": (INT, [INT, C_STRING, POINTER]),
    "cachealloc_hook_push": (INT, [POINTER]),
    "cachealloc_hook_pop": (INT, [POINTER]),
    "cachealloc_stats": (SIZE, [POINTER, SIZE]),
}

# A separate instance, so that the types set here do not affect other users of ctypes.
_PROCESS = ctypes.CDLL(None)


class Error(Exception):
    """Base class of the errors of this package."""


class NotLoaded(Error):
    """The library is not preloaded in this process."""


class TooOld(Error):
    """The library preloaded in this process lacks a function that this package calls."""


class Failed(Error, OSError):
    """The library refused a call; ``errno`` is described in include/cachealloc.h."""


def is_loaded() -> bool:
    """Returns whether the library is preloaded in this process. It may still be off (``CACHEALLOC=0``)."""
    return hasattr(_PROCESS, "cachealloc_version")


@lru_cache(maxsize=None)
def function(name: str) -> Any:
    """Returns a function of the library by its C name."""
    if not is_loaded():
        raise NotLoaded(
            "libcachealloc.so is not loaded in this process: start it with `cachealloc run -- python ...`, or with"
            " LD_PRELOAD set to the output of `python -c 'import cachealloc; print(cachealloc.library())'`"
        )
    if not hasattr(_PROCESS, name):
        _PROCESS.cachealloc_version.restype = C_STRING
        version = _PROCESS.cachealloc_version().decode()
        raise TooOld(
            f"the libcachealloc.so in this process is version {version}, which has no {name}: preload the one that came"
            " with this package (cachealloc.library())"
        )
    found = getattr(_PROCESS, name)
    found.restype, found.argtypes = _SIGNATURES[name]
    return found


def check(code: int, what: str, reasons: Optional[Dict[int, str]] = None, file: Optional[str] = None) -> None:
    """Raises `Failed` for an errno value of the library, unless it is 0."""
    if code == 0:
        return
    off = (
        "the library is off in this process: CACHEALLOC=0 is set, caching ended because of a fault, or this is a child"
        " forked after CUDA was started"
    )
    reason = {errno.ENOTSUP: off, **(reasons or {})}.get(code, os.strerror(code))
    text = f"{what}: {reason}"
    raise Failed(code, text) if file is None else Failed(code, text, file)
