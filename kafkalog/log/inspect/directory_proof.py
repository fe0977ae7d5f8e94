"""What ``kafkalog.checkpoint`` proves of the log in a partition's directory, for who only reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kafkalog.format.disk.checkpoints import decode_leader_epochs, decode_offsets
from kafkalog.format.disk.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_PROOFS,
    META_PROPERTIES,
    PARTITION_METADATA,
)
from kafkalog.format.disk.log_proofs import NOTHING_PROVEN, LogKey, decode_proofs, stays_gapless
from kafkalog.format.disk.properties import decode_meta_properties, decode_partition_metadata
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import encode_id, parse_directory_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.disk.log_proofs import CheckedOffsets

T = TypeVar("T")


def proof_of(filesystem: ReadFilesystem, directory: str) -> CheckedOffsets:
    """What a daemon wrote under a checksum of the log in a partition's directory. OSError.

    Nothing is proven without a sound file of this log directory and the topic's id.
    """
    log_dir, _, name = directory.rpartition("/")
    try:
        partition = parse_directory_name(name).topic_partition
        directory_id, entries = decode_proofs(filesystem.read_file(f"{log_dir}/{LOG_PROOFS}"))
        meta = decode_meta_properties(filesystem.read_file(f"{log_dir}/{META_PROPERTIES}"))
        metadata = filesystem.read_file(f"{directory}/{PARTITION_METADATA}")
        topic_id = encode_id(decode_partition_metadata(metadata))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return NOTHING_PROVEN
    if meta.directory_id != directory_id:
        return NOTHING_PROVEN
    proof = entries.get(LogKey(topic_id, partition.partition), NOTHING_PROVEN)
    if not proof.is_gapless:
        return proof
    cleaned = _read(filesystem, f"{log_dir}/{CLEANER_OFFSET_CHECKPOINT}", decode_offsets)
    epochs = _read(filesystem, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", decode_leader_epochs)
    is_gapless = stays_gapless(
        proof.is_gapless,
        was_cleaned=partition in (cleaned or ()),
        epochs=(epoch for epoch, _ in epochs or ()),
    )
    return replace(proof, is_gapless=is_gapless)


def _read(filesystem: ReadFilesystem, path: str, decode: Callable[[bytes], T]) -> T | None:
    """A checkpoint; None where there is none that can be read."""
    try:
        return decode(filesystem.read_file(path))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return None
