"""Memory hooks: a class with callbacks, as CuPy has it."""

import ctypes
import errno
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from ._library import INT, POINTER, SIZE, U64, Error, check, function

_KIND = ("kind", INT)
_DEVICE, _ASKED, _ROUNDED, _ADDRESS, _ID = (
    ("device_id", INT),
    ("size", SIZE),
    ("mem_size", SIZE),
    ("mem_ptr", U64),
    ("pmem_id", U64),
)
# In the order of struct cachealloc_hook.
_CALLBACKS: List[Tuple[str, List[Tuple[str, Any]]]] = [
    ("alloc_preprocess", [_DEVICE, _ROUNDED]),
    ("alloc_postprocess", [_DEVICE, _ROUNDED, _ADDRESS]),
    ("malloc_preprocess", [_DEVICE, _ASKED, _ROUNDED]),
    ("malloc_postprocess", [_DEVICE, _ASKED, _ROUNDED, _ADDRESS, _ID]),
    ("free_preprocess", [_DEVICE, _ROUNDED, _ADDRESS, _ID]),
    ("free_postprocess", [_DEVICE, _ROUNDED, _ADDRESS, _ID]),
    ("other_allocated", [_DEVICE, _KIND, _ASKED, _ADDRESS, _ID]),
    ("other_freed", [_DEVICE, _KIND, _ASKED, _ADDRESS, _ID]),
]
_TYPES: Dict[str, Any] = {
    name: ctypes.CFUNCTYPE(None, POINTER, *(kind for _, kind in taken)) for name, taken in _CALLBACKS
}


class _Table(ctypes.Structure):
    """struct cachealloc_hook."""

    _fields_ = [("size", SIZE), ("name", ctypes.c_char_p), ("data", POINTER)] + list(_TYPES.items())


# What the library may call into. A table leaves when the library has let go of it, and not before: a hook that is
# collected, or left by another thread, would leave the library with code that is gone.
_TABLES: Dict[int, _Table] = {}

_Hook = TypeVar("_Hook", bound="MemoryHook")


class MemoryHook:
    """Is told of every allocation and free of the thread that enters it, whichever library makes them.

    Derive from it, implement the methods that you want to hear, and use an object of it in a ``with`` block::

        class Largest(cachealloc.MemoryHook):
            size = 0
            def malloc_postprocess(self, *, device_id, size, mem_size, mem_ptr, pmem_id):
                self.size = max(self.size, size)

        with Largest() as largest:
            train()
        print(largest.size)

    The methods have the names and the arguments of CuPy's ``MemoryHook``: ``size`` is what the program asked for,
    ``mem_size`` what that is rounded to, ``mem_ptr`` the address (0 where the call failed), ``pmem_id`` the same for
    an allocation and its free. They may allocate and call CUDA; no hook is told of that. What they raise is printed
    (``sys.unraisablehook``), and the program goes on.

    ``other_allocated`` and ``other_freed``, which CuPy has not, hear of memory of other kinds, after a call that
    succeeded. ``kind`` is one of the numbers below; of ``ARRAY`` and ``PHYSICAL`` ``mem_ptr`` is the handle, and of memory
    of the host ``device_id`` is -1.
    """

    MANAGED, PINNED, ARRAY, PHYSICAL, MAPPED, GRAPH = range(1, 7)

    name = "MemoryHook"
    _table: Optional[_Table] = None

    def alloc_preprocess(self, *, device_id: int, mem_size: int) -> None:
        """Before memory is taken from the driver."""

    def alloc_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int) -> None:
        """After memory was taken from the driver."""

    def malloc_preprocess(self, *, device_id: int, size: int, mem_size: int) -> None:
        """Before an allocation."""

    def malloc_postprocess(self, *, device_id: int, size: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """After an allocation."""

    def free_preprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """Before a free."""

    def free_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """After a free."""

    def other_allocated(self, *, device_id: int, kind: int, size: int, mem_ptr: int, pmem_id: int) -> None:
        """After memory of another kind was allocated."""

    def other_freed(self, *, device_id: int, kind: int, size: int, mem_ptr: int, pmem_id: int) -> None:
        """After memory of another kind was freed."""

    def __enter__(self: _Hook) -> _Hook:
        push = function("cachealloc_hook_push")
        if self._table is not None:
            raise Error(f"{self.name} is in use already: a block inside its own, or another thread's")
        table = _Table(ctypes.sizeof(_Table), self.name.encode())
        for name, taken in _CALLBACKS:
            method = getattr(self, name)
            # What is not implemented costs nothing.
            if getattr(method, "__func__", None) is not getattr(MemoryHook, name):
                setattr(table, name, _TYPES[name](_by_name(method, [argument for argument, _ in taken])))
        code = push(ctypes.byref(table))
        check(code, f"no hook {self.name}", {errno.ENOMEM: "this thread has sixteen hooks already"})
        self._table = table
        _TABLES[ctypes.addressof(table)] = table
        return self

    def __exit__(self, *_: object) -> None:
        table = self._table
        if table is None:
            return
        code = function("cachealloc_hook_pop")(ctypes.byref(table))
        gone = "this thread has not entered it, or the library has removed it"
        check(code, f"{self.name} is not taken out", {errno.ENOENT: gone})
        self._table = None
        del _TABLES[ctypes.addressof(table)]


def _by_name(method: Callable[..., object], names: List[str]) -> Callable[..., None]:
    def call(_data: object, *values: int) -> None:
        method(**dict(zip(names, values)))

    return call
