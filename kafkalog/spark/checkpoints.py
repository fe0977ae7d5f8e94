"""Checkpoint files of log directories: what a daemon last wrote down of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.checkpoint_text import decode_offsets
from kafkalog.format.file_names import LOG_PROOFS, META_PROPERTIES, PARTITION_METADATA
from kafkalog.format.format_error import FormatError
from kafkalog.format.log_proofs import CheckedOffsets, LogKey, decode_proofs
from kafkalog.format.meta_properties import decode_meta_properties
from kafkalog.format.partition_metadata import decode_partition_metadata
from kafkalog.format.topic_id import encode_id
from kafkalog.spark.object_store import shown

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.topic_partition import TopicPartition


class Checkpoints:
    """Files that are decoded when they changed, as every partition asks for them. One thread."""

    def __init__(self, filesystem: ReadFilesystem) -> None:
        self._filesystem = filesystem
        self._known: dict[str, tuple[bytes, dict[TopicPartition, int]]] = {}

    def offsets(self, log_dir: str, name: str) -> dict[TopicPartition, int]:
        """All offsets of a checkpoint, none without one. Raises CorruptCheckpoint, OSError."""
        path = f"{log_dir}/{name}"
        try:
            data = self._filesystem.read_file(path)
        except FileNotFoundError:
            return {}
        known = self._known.get(path)
        if known is None or known[0] != data:
            try:
                known = data, decode_offsets(data)
            except FormatError as error:
                raise CorruptCheckpoint(error.reason, file=shown(path), position=0) from error
            self._known[path] = known
        return known[1]


def proof_of(filesystem: ReadFilesystem, place: str, partition: int) -> CheckedOffsets:
    """What a daemon wrote under a checksum of the log in a partition's directory. OSError.

    Nothing is proven without a sound file of this log directory and the topic's id.
    """
    log_dir = place.rsplit("/", 1)[0]
    try:
        directory_id, entries = decode_proofs(filesystem.read_file(f"{log_dir}/{LOG_PROOFS}"))
        meta = decode_meta_properties(filesystem.read_file(f"{log_dir}/{META_PROPERTIES}"))
        metadata = filesystem.read_file(f"{place}/{PARTITION_METADATA}")
        topic_id = encode_id(decode_partition_metadata(metadata))
    except (FileNotFoundError, FormatError):
        return CheckedOffsets()
    if meta.directory_id != directory_id:
        return CheckedOffsets()
    return entries.get(LogKey(topic_id, partition), CheckedOffsets())
