"""Classes of disk errors: which errno means a full disk, short descriptors or a failed directory.

Pure. Source: reliability.md 2.2; Kafka takes the directory offline for all of them.
"""

from __future__ import annotations

import errno

from kafkalog.errors import DescriptorsShort, DiskFull, LogDirOffline, StorageFault

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def fault_of(error: OSError, path: str) -> StorageFault:
    """The fault that error is for the log directory at path; LogDirOffline unless known better."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFull(f"No space is left in log directory {path}: {reason}", log_dir=path)
    if error.errno in _SHORT:
        return DescriptorsShort(
            f"File descriptors or memory are short in log directory {path}: {reason}", log_dir=path
        )
    return LogDirOffline(f"Log directory {path} failed: {reason}", log_dir=path)
