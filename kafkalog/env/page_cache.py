"""Whether bytes of a file are in the page cache: Linux's cachestat, since 6.5.

Where the system call is not known or not allowed the answer is no.
"""

from __future__ import annotations

import ctypes
import mmap

_CACHESTAT = 451  # of every processor: system calls since 5.1 have one number
_PAGE_BYTES = mmap.PAGESIZE


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Stat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recent")
    ]


_system_call = ctypes.CDLL(None, use_errno=False).syscall
_system_call.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.POINTER(_Range),
    ctypes.POINTER(_Stat),
    ctypes.c_uint,
)
_system_call.restype = ctypes.c_long


def is_cached(fd: int, position: int, size_bytes: int) -> bool:
    """Whether every page of these bytes, of which there is at least one, is there now."""
    wanted, found = _Range(position, size_bytes), _Stat()
    if _system_call(_CACHESTAT, fd, ctypes.byref(wanted), ctypes.byref(found), 0) != 0:
        return False
    pages = (position + size_bytes - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
    return bool(found.cache >= pages)
