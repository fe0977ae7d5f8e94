"""The process's allocator: freed buffers stay mapped, so the next one costs no page faults.

By itself glibc maps large blocks on their own and gives back what is freed at the top of a heap:
fetched chunks and pages would be faulted in and zeroed by the kernel anew, which costs more than
their CRC. With both thresholds raised the heap itself is the pool of buffers, and none is used
again while a transport still holds it. What is freed beyond the second threshold goes back.
Called once by the composition root, before threads exist.
"""

from __future__ import annotations

import ctypes

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The most that every glibc accepts: half of what the heap of a thread may be.
_MAPPED_ALONE_FROM_BYTES = 32 << 20
_KEPT_AT_TOP_BYTES = 512 << 20


def keep_freed_memory() -> bool:
    """Raise the allocator's thresholds; False where the C library knows no such thing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    is_kept = bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_TOP_BYTES))
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_FROM_BYTES)) and is_kept
