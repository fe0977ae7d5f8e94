"""What the files beside a partition directory say of compaction, for tools without a daemon.

A small compacted log may have a gap between two segments and none inside one; its batches alone
cannot tell that from a lost segment. Reads two files of the log directory, changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS
from kafkalog.broker.topics.registry import registered_configs
from kafkalog.format.disk.checkpoints import decode_offsets
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import parse_directory_name

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem


def is_known_compacted(path: str, filesystem: Filesystem) -> bool:
    """Whether the cleaner's checkpoint names the partition or its topic's policy is compact.

    False when nothing says so: a copy of the directory alone, damaged files, a policy that is the
    default of all topics. OSError.
    """
    log_dir, _, name = path.rpartition("/")
    try:
        partition = parse_directory_name(name).topic_partition
    except FormatError:
        return False
    with suppress(FileNotFoundError, IsADirectoryError, FormatError):
        if partition in decode_offsets(filesystem.read_file(f"{log_dir}/{CLEANER_OFFSETS}")):
            return True
    configs = registered_configs(log_dir, filesystem).get(partition.topic, {})
    return "compact" in configs.get("cleanup.policy", "")
