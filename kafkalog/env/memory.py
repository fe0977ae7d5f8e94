"""The process's allocator: freed buffers stay mapped for the next ones, but not for ever.

By itself glibc maps large blocks on their own and gives back what is freed at the top of a heap:
fetched chunks and pages would be faulted in and zeroed by the kernel anew, which costs more than
their CRC. With both thresholds raised the heap itself is the pool of buffers, and none is used
again while a transport still holds it. What is freed beyond the second threshold goes back.

What a peak leaves behind would stay as well: most of it lies between blocks that are in use, where
glibc never looks. So it is asked to, now and then (``give_freed_memory_back``).
"""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The most that every glibc accepts: half of what the heap of a thread may be.
_MAPPED_ALONE_FROM_BYTES = 32 << 20
_KEPT_AT_TOP_BYTES = 512 << 20
_STATM = Path("/proc/self/statm")
# Less is not worth the faults of those who need it again.
_WORTH_GIVING_BYTES = 8 << 20


def keep_freed_memory() -> bool:
    """Raise the allocator's thresholds; False where the C library knows no such thing.

    Called once by the composition root, before threads exist.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    is_kept = bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_TOP_BYTES))
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_FROM_BYTES)) and is_kept


def give_freed_memory_back(resident_before: int) -> int:
    """Give free pages to the system if the process has grown; how much is resident then, in bytes.

    ``resident_before``: what the last call returned, 0 before the first. Takes some 20 ms for each
    100 MB that go, while threads that allocate large blocks wait: any thread of normal priority but
    the event loop's. -1 where the C library or the system knows no such thing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or not _STATM.exists():
        return -1
    resident = _resident_bytes()
    if resident - resident_before < _WORTH_GIVING_BYTES:
        return min(resident, resident_before)
    trim(ctypes.c_size_t(0))
    return _resident_bytes()


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()
