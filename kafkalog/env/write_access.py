"""Write access to the log directories: who this process is, and the command that lets it write.

Looked at before anything is written, because the commonest fault of a volume is that it belongs to
somebody else, and ``Permission denied`` names neither. Changes nothing; blocks on the disk.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from shlex import quote

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

    verb: what has to be done to it first. Never a remedy for what lies above it: others live there.
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
        return False  # what cannot be reached is somebody else's
