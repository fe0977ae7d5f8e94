"""What ``kafkalog.checkpoint`` proves of the log in a partition's directory, for who only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.file_names import LOG_PROOFS, META_PROPERTIES, PARTITION_METADATA
from kafkalog.format.format_error import FormatError
from kafkalog.format.log_proofs import NOTHING_PROVEN, LogKey, decode_proofs
from kafkalog.format.meta_properties import decode_meta_properties
from kafkalog.format.partition_metadata import decode_partition_metadata
from kafkalog.format.topic_id import encode_id
from kafkalog.format.topic_partition import parse_directory_name

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.log_proofs import CheckedOffsets


def proof_of(filesystem: ReadFilesystem, directory: str) -> CheckedOffsets:
    """What a daemon wrote under a checksum of the log in a partition's directory. OSError.

    Nothing is proven without a sound file of this log directory and the topic's id.
    """
    log_dir, _, name = directory.rpartition("/")
    try:
        partition = parse_directory_name(name).topic_partition.partition
        directory_id, entries = decode_proofs(filesystem.read_file(f"{log_dir}/{LOG_PROOFS}"))
        meta = decode_meta_properties(filesystem.read_file(f"{log_dir}/{META_PROPERTIES}"))
        metadata = filesystem.read_file(f"{directory}/{PARTITION_METADATA}")
        topic_id = encode_id(decode_partition_metadata(metadata))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return NOTHING_PROVEN
    if meta.directory_id != directory_id:
        return NOTHING_PROVEN
    return entries.get(LogKey(topic_id, partition), NOTHING_PROVEN)
