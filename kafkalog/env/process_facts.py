"""Facts and limits of this process: descriptors, allocator, variables, counted I/O, write access.

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
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

_RESERVE_SHARE, _RESERVE_SHARE_MAX = 16, 4
_RESERVE_MIN = 64  # an append to an idle partition opens three


def environment_variable(name: str) -> str | None:
    """The value of an environment variable; None: it is not set."""
    return os.environ.get(name)


def set_environment_variable(name: str, value: str) -> None:
    """Set an environment variable of this process and of those that it starts."""
    os.environ[name] = value


def connection_descriptors(limit: int, *, is_for_operators: bool) -> int:
    """The number of the first descriptor with which a connection is refused.

    POSIX assigns the lowest free number, so that a number this high means that nearly all are in
    use. The reserve is for logs; the ports of operators may use half of it.
    """
    reserve = max(limit // _RESERVE_SHARE, min(_RESERVE_MIN, limit // _RESERVE_SHARE_MAX))
    return limit - (reserve // 2 if is_for_operators else reserve)


def descriptor_limit() -> int:
    """The hard limit, up to which this process may raise its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(hard)


def raise_descriptor_limit() -> int:
    """Raise the limit of descriptors to the hard limit; the limit that now applies."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # more than the kernel accepts: the limit stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft_descriptor_limit()


def soft_descriptor_limit() -> int:
    """The limit of descriptors that applies now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _number(soft)


def _number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The maximum that every glibc accepts: half of the size of a thread's heap.
_MAPPED_ALONE_FROM_BYTES = 32 << 20
_RETAINED_AT_TOP_BYTES = 512 << 20
_STATM = Path("/proc/self/statm")
# Returning less would cost more page faults than it saves memory.
_WORTH_GIVING_BYTES = 8 << 20


def keep_freed_memory() -> bool:
    """Raise the allocator's thresholds; False where the C library has no such function.

    Called once by the composition root, before threads exist.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    is_kept = bool(mallopt(_M_TRIM_THRESHOLD, _RETAINED_AT_TOP_BYTES))
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE_FROM_BYTES)) and is_kept


def give_freed_memory_back(resident_before: int) -> int:
    """Return free pages to the system if the process has grown; its resident bytes afterwards.

    ``resident_before`` is the result of the last call, 0 before the first. Takes some 20 ms for
    each 100 MB returned, during which threads that allocate large blocks wait: not for the event
    loop. -1 where the C library or the system has no such function.
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
    """(bytes read, bytes written) since the start of the process; None if the kernel does not say.

    Touches no disk: the file is in the kernel's memory.
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
    """A path that cannot be written to, its owner, and the remedy."""

    path: str  # the log directory, an entry of it, or the nearest existing directory above
    owner: str  # uid:gid
    mode: str  # octal
    process: str  # uid:gid
    remedy: str

    def __str__(self) -> str:
        return (
            f"The daemon runs as {self.process} and may not write to {self.path} (owner "
            f"{self.owner}, mode {self.mode}): {self.remedy}."
        )


def write_access_fault(log_dir: str) -> AccessFault | None:
    """The first of the directory and its entries that this process may not write to, or None.

    Reads only names and attributes; the load finds a broken disk. For a directory that does not
    exist the nearest existing one above it is checked.
    """
    try:
        return _fault_below(os.path.abspath(log_dir))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return _fault(os.path.abspath(log_dir))
        return None  # the load reports it with more detail


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
            # Other directories (lost+found) are not written to, and files are replaced by name.
            is_partition = "-" in entry.name and entry.is_dir(follow_symlinks=False)
            if (is_partition or entry.name == _LOCK_FILE) and not _may_write(entry.path):
                return _fault(entry.path, log_dir)
    return None


def _may_write(path: str) -> bool:
    need = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    return os.access(path, need, effective_ids=True)


def _fault(path: str, log_dir: str | None = None, *, verb: str = "") -> AccessFault:
    """The known facts of path, and the remedy for the whole log directory.

    verb: a command that must precede. The remedy never changes the directories above.
    """
    try:
        found = os.stat(path)
        owner, mode = f"{found.st_uid}:{found.st_gid}", f"{found.st_mode & 0o7777:04o}"
    except OSError:
        owner = mode = "unknown"
    uid, gid = os.geteuid(), os.getegid()
    # In a container every user is in group 0: Kubernetes cannot give the volume to it alone.
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


def own_command() -> str:
    """How a person types this program here: by name, by its path, or as a module of Python."""
    if shutil.which("kafkalog"):
        return "kafkalog"
    program = sys.argv[0]
    is_script = program.rpartition("/")[2] == "kafkalog"
    return quote(program) if is_script else f"{quote(sys.executable)} -m kafkalog"
