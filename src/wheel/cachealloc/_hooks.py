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


# Tables that the library may call into. A table is removed only after the library has removed it: otherwise a hook
# that is garbage-collected, or left by another thread, would leave the library with a dangling callback.
_TABLES: Dict[int, _Table] = {}

_Hook = TypeVar("_Hook", bound="MemoryHook")


class MemoryHook:
    """Receives every allocation and free of the thread that enters it, whichever library makes them.

    Derive a class, implement the methods of interest, and use an object of it in a ``with`` block::

        class Largest(cachealloc.MemoryHook):
            size = 0
            def malloc_postprocess(self, *, device_id, size, mem_size, mem_ptr, pmem_id):
                self.size = max(self.size, size)

        with Largest() as largest:
            train()
        print(largest.size)

    The methods have the names and the arguments of CuPy's ``MemoryHook``: ``size`` is the requested size, ``mem_size``
    the rounded size, ``mem_ptr`` the address (0 if the call failed), and ``pmem_id`` is the same for an allocation and
    its free. They may allocate and call CUDA, which calls no hook. Exceptions that they raise are printed
    (``sys.unraisablehook``), and the program continues.

    ``other_allocated`` and ``other_freed``, which CuPy lacks, receive memory of other kinds, after a call that
    succeeded. ``kind`` is one of the numbers below. For ``ARRAY`` and ``PHYSICAL``, ``mem_ptr`` is the handle; for host
    memory, ``device_id`` is -1.
    """

    MANAGED, PINNED, ARRAY, PHYSICAL, MAPPED, GRAPH = range(1, 7)

    name = "MemoryHook"
    _table: Optional[_Table] = None

    def alloc_preprocess(self, *, device_id: int, mem_size: int) -> None:
        """Called before the driver is asked for memory."""

    def alloc_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int) -> None:
        """Called after the driver was asked for memory."""

    def malloc_preprocess(self, *, device_id: int, size: int, mem_size: int) -> None:
        """Called before an allocation."""

    def malloc_postprocess(self, *, device_id: int, size: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """Called after an allocation."""

    def free_preprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """Called before a free."""

    def free_postprocess(self, *, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
        """Called after a free."""

    def other_allocated(self, *, device_id: int, kind: int, size: int, mem_ptr: int, pmem_id: int) -> None:
        """Called after memory of another kind was allocated."""

    def other_freed(self, *, device_id: int, kind: int, size: int, mem_ptr: int, pmem_id: int) -> None:
        """Called after memory of another kind was freed."""

    def __enter__(self: _Hook) -> _Hook:
        push = function("cachealloc_hook_push")
        if self._table is not None:
            raise Error(f"{self.name} is in use already, by an outer block or another thread")
        table = _Table(ctypes.sizeof(_Table), self.name.encode())
        for name, taken in _CALLBACKS:
            method = getattr(self, name)
            # Methods that are not implemented cost nothing.
            if getattr(method, "__func__", None) is not getattr(MemoryHook, name):
                setattr(table, name, _TYPES[name](_by_name(method, [argument for argument, _ in taken])))
        code = push(ctypes.byref(table))
        check(code, f"cannot add the hook {self.name}", {errno.ENOMEM: "this thread has sixteen hooks already"})
        self._table = table
        _TABLES[ctypes.addressof(table)] = table
        return self

    def __exit__(self, *_: object) -> None:
        table = self._table
        if table is None:
            return
        code = function("cachealloc_hook_pop")(ctypes.byref(table))
        gone = "this thread has not entered it, or the library has removed it"
        check(code, f"cannot remove the hook {self.name}", {errno.ENOENT: gone})
        self._table = None
        del _TABLES[ctypes.addressof(table)]


def _by_name(method: Callable[..., object], names: List[str]) -> Callable[..., None]:
    def call(_data: object, *values: int) -> None:
        method(**dict(zip(names, values)))

    return call
