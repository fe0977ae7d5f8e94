"""What the doctor looks at: the log directories and the limits of the process. Changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.broker.directory.identity import IdentityFiles, read_identity_files
from kafkalog.broker.directory.log_dir import LOCK_FILE
from kafkalog.broker.topics.registry import registered_configs
from kafkalog.cli.doctor.mounts import Mount, mount_of, parse_mounts
from kafkalog.env.process_facts import descriptor_limit
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import DirectoryState, parse_directory_name
from kafkalog.log.inspect.directory_facts import log_dir_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.env.filesystem import Filesystem

_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """One log directory. Of one that is absent, the rest is told of the nearest that exists.

    partitions  how many of each topic lie there
    overrides   configs of each topic that its registry knows
    identity    its registry and meta.properties; None of one that is absent
    """

    path: str
    exists: bool
    is_writable: bool
    is_in_use: bool
    total_bytes: int
    usable_bytes: int
    device: int
    mount: Mount | None
    partitions: Mapping[str, int]
    overrides: Mapping[str, Mapping[str, str]]
    identity: IdentityFiles | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """``descriptor_limit``: how many a daemon could have."""

    log_dirs: tuple[LogDirFacts, ...]
    descriptor_limit: int


def machine_facts(log_dirs: Sequence[str], filesystem: Filesystem) -> MachineFacts:
    """Look at it now. OSError when a directory cannot be looked at, UnusableLogDirs."""
    try:
        mounts = parse_mounts(_MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        mounts = []  # no Linux, or hidden: what is mounted where is then not judged
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in log_dirs)
    found = tuple(_log_dir(path, filesystem, mounts) for path in paths)
    return MachineFacts(found, descriptor_limit())


def _log_dir(path: str, filesystem: Filesystem, mounts: list[Mount]) -> LogDirFacts:
    exists = os.path.isdir(path)
    nearest = path
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    total_bytes, usable_bytes = filesystem.space(nearest)
    lock = os.path.join(path, LOCK_FILE)
    return LogDirFacts(
        path,
        exists,
        os.access(nearest, os.W_OK | os.X_OK),
        exists and filesystem.exists(lock) and filesystem.is_locked(lock),
        total_bytes,
        usable_bytes,
        filesystem.device(nearest),
        mount_of(filesystem.real_path(nearest), mounts),
        _partitions(path, filesystem) if exists else {},
        registered_configs(path, filesystem) if exists else {},
        read_identity_files(path, filesystem) if exists else None,
    )


def _partitions(path: str, filesystem: Filesystem) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for name in filesystem.list_dir(path):
        try:
            found = parse_directory_name(name)
        except FormatError:
            continue  # a checkpoint, or nothing of ours
        if found.state is DirectoryState.LIVE:
            counts[found.topic_partition.topic] += 1
    return counts
