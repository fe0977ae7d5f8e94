"""Classes of disk errors: which errno means a full disk, short descriptors or a failed directory.

And what the operator does about each. Pure. Kafka takes the directory offline for all of them.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kafkalog.errors import DescriptorsShort, DiskFull, LogDirOffline, StorageFault, Unavailable

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def remedy_of(fault: KafkalogError) -> str:
    """What the operator does about what keeps a partition out of service, for a line of the log."""
    match fault:
        case DiskFull():
            return "Free space on the disk of the log directory: what was refused is tried again."
        case DescriptorsShort():
            return "Allow more open files (ulimit -n) or free memory: it is tried again."
        case StorageFault():
            return "Repair the log directory or name another in log.dirs, then restart the daemon."
        case Unavailable():
            return "None is needed: it is tried again."
        case _:
            return (
                "Stop the daemon, restore the files that the reason names, or move the partition's "
                "directory away and start with create.missing.partitions=true (it is then made "
                "anew, empty)."
            )


FILE_LIMIT_REMEDY = (
    "Raise the limit of the size of files (ulimit -f), or set a smaller segment.bytes: appends "
    "begin again by themselves."
)
"""Of a disk that refuses a larger file, not more bytes."""


def is_passing(fault: KafkalogError) -> bool:
    """Whether the fault may end without a restart."""
    return isinstance(fault, DiskFull | DescriptorsShort)


def fault_of(error: OSError, path: str) -> StorageFault:
    """The fault that error is for the log directory at path; LogDirOffline unless known better."""
    reason = error.strerror or str(error)
    if error.errno == errno.EFBIG:
        return DiskFull(f"A file in log directory {path} cannot grow: {reason}", log_dir=path)
    if error.errno in _FULL:
        return DiskFull(f"No space is left in log directory {path}: {reason}", log_dir=path)
    if error.errno in _SHORT:
        return DescriptorsShort(
            f"File descriptors or memory are short in log directory {path}: {reason}", log_dir=path
        )
    if error.errno == errno.ENOTDIR:
        reason = "it is a file or lies below one; log.dirs names directories"
    named = error.filename
    file = f" ({named})" if isinstance(named, str) and named != path else ""
    return LogDirOffline(f"Log directory {path} failed: {reason}{file}", log_dir=path)
