"""What the files beside a partition directory say of gaps in it, for tools without a daemon.

A small compacted log may have a gap between two segments and none inside one; its batches alone
cannot tell that from a lost segment. Reads two files of the log directory, changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.checkpoint_text import decode_offsets
from kafkalog.format.file_names import PARTITION_METADATA
from kafkalog.format.format_error import FormatError
from kafkalog.format.log_proofs import LogKey, decode_proofs
from kafkalog.format.partition_metadata import decode_partition_metadata
from kafkalog.format.topic_id import encode_id
from kafkalog.format.topic_partition import parse_directory_name
from kafkalog.manager.log_dir import CLEANER_OFFSETS, PROOFS
from kafkalog.manager.registered_configs import registered_configs

if TYPE_CHECKING:
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.topic_partition import TopicPartition


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
    configs = registered_configs(log_dir, filesystem).get(partition.topic, {})
    return _is_cleaned(f"{log_dir}/{CLEANER_OFFSETS}", partition, filesystem) or (
        "compact" in configs.get("cleanup.policy", "")
    )


def is_known_gapless(path: str, filesystem: Filesystem) -> bool:
    """Whether nothing took offsets out of the partition since it was made, as its log directory has
    it under a checksum.

    False when nothing says so: a copy of the directory alone, damaged files. OSError.
    """
    log_dir, _, name = path.rpartition("/")
    try:
        partition = parse_directory_name(name).topic_partition
        topic_id = decode_partition_metadata(filesystem.read_file(f"{path}/{PARTITION_METADATA}"))
        _, proofs = decode_proofs(filesystem.read_file(f"{log_dir}/{PROOFS}"))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return False
    proof = proofs.get(LogKey(encode_id(topic_id), partition.partition))
    is_cleaned = _is_cleaned(f"{log_dir}/{CLEANER_OFFSETS}", partition, filesystem)
    return proof is not None and proof.is_gapless and not is_cleaned


def _is_cleaned(path: str, partition: TopicPartition, filesystem: Filesystem) -> bool:
    try:
        return partition in decode_offsets(filesystem.read_file(path))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return False
