"""Facts and limits of this process: descriptors, the allocator, counted I/O, write access.

Descriptors: the limit of open files, and how many of them connections leave to files.

Allocator: glibc by default maps large blocks separately and returns freed memory at the top of the
heap. Buffers of fetches would then be mapped and zeroed by the kernel again for each request, which
costs more than their CRC. With both thresholds raised the heap is the pool of buffers. Memory that
a peak leaves free between used blocks is returned by ``give_freed_memory_back``.

Write access to log directories: checked before anything is written, because the most common fault
of a volume is a wrong owner, and ``Permission denied`` names neither. Changes nothing; blocks on
the disk. Counted I/O is Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

_RESERVE_SHARE, _RESERVE_SHARE_MAX = 16, 4
_RESERVE_MIN = 64  # an append to a partition that was at rest takes three


def connection_descriptors(limit: int, *, is_for_operators: bool) -> int:
    """The descriptor from which on a connection is refused.

    POSIX gives out the lowest free number, so one this high says that nearly all are taken, by
    whatever. The rest is for logs; half of it is for the ports of operators, too.
    """
    reserve = max(limit // _RESERVE_SHARE, min(_RESERVE_MIN, limit // _RESERVE_SHARE_MAX))
    return limit - (reserve // 2 if is_for_operators else reserve)


def descriptor_limit() -> int:
    """How many this process can allow itself: the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(hard)


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the hard limit does; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # more than the kernel takes: what was, holds
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft_descriptor_limit()


def soft_descriptor_limit() -> int:
    """How many this process may have now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(soft)


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


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


_FILE = Path("/proc/self/io")


def process_io() -> tuple[int, int] | None:
    """(bytes read, bytes written) since the process began; None where the kernel does not say.

    No disk is touched: the file is the kernel's own memory.
    """
    try:
        text = _FILE.read_text(encoding="ascii")
    except OSError:
        return None
    counts = dict(line.split(": ", 1) for line in text.splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


_ROOT_GROUP = 0
_LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class AccessFault:
    """What cannot be written to, whose it is, and what to do about it."""

    path: str  # the log directory or something directly in it; its parent when it is not there
    owner: str  # uid:gid
    mode: str  # octal
    process: str  # uid:gid
    remedy: str


def write_access_fault(log_dir: str) -> AccessFault | None:
    """The first of directory and entries that this process may not write to; None: there is none.

    Looks at names and attributes only: a disk that is broken answers at the load. A directory that
    is not there yet is judged by the nearest one above it.
    """
    try:
        return _fault_below(os.path.abspath(log_dir))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return _fault(os.path.abspath(log_dir))
        return None  # the load says it better


def _fault_below(log_dir: str) -> AccessFault | None:
    if not os.path.lexists(log_dir):
        parent = os.path.dirname(log_dir)
        while not os.path.lexists(parent):
            parent = os.path.dirname(parent)
        return None if _may_write(parent) else _fault(parent, log_dir, verb="mkdir -p")
    if not _may_write(log_dir):
        return _fault(log_dir)
    with os.scandir(log_dir) as entries:
        for entry in entries:
            # Of others' directories (lost+found) nothing is wanted, and files are replaced by name.
            is_partition = "-" in entry.name and entry.is_dir(follow_symlinks=False)
            if (is_partition or entry.name == _LOCK_FILE) and not _may_write(entry.path):
                return _fault(entry.path, log_dir)
    return None


def _may_write(path: str) -> bool:
    need = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    return os.access(path, need, effective_ids=True)


def _fault(path: str, log_dir: str | None = None, *, verb: str = "") -> AccessFault:
    """The facts of path, as far as they can be seen, and the remedy for the whole log directory.

    verb: what has to be done to it first. Never for the directories above it.
    """
    try:
        found = os.stat(path)
        owner, mode = f"{found.st_uid}:{found.st_gid}", f"{found.st_mode & 0o7777:04o}"
    except OSError:
        owner = mode = "unknown"
    uid, gid = os.geteuid(), os.getegid()
    # Group 0 is everybody's in a container: Kubernetes cannot give the volume to it alone.
    fs_group = uid if gid == _ROOT_GROUP else gid
    place = quote(log_dir or path)
    first = f"{verb} {place} && " if verb else ""
    if _is_read_only(path):
        remedy = (
            f"the file system is read-only to this process, whoever owns {place}: mount it "
            f"read-write, or under systemd have ReadWritePaths={place} in a drop-in of the unit"
        )
    else:
        remedy = (
            f"{first}chown -R {uid}:{gid} {place}, or in Kubernetes the pod's "
            f"securityContext.fsGroup: {fs_group}"
        )
    return AccessFault(path, owner, mode, f"{uid}:{gid}", remedy)


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False  # unreachable: it has another owner
