"""The manifest of a backup: its files, their lengths, and whether the backup is complete.

One JSON object in the root of a backup, with the fields of ``BackupManifest``. It is written first
with ``complete`` false and replaced as the last step: a directory whose manifest does not say
``complete`` is no backup. Pure functions.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, topic_name_fault

MANIFEST_FILE = "kafkalog-backup.json"
RESTORE_MARKER = "kafkalog.restoring"  # in a log directory that is being restored
FORMAT = 1

_MESSAGE_WHOLE = "The manifest of the backup"
_NaturalNumber = Annotated[int, msgspec.Meta(ge=0)]
# What a restore may create: a log directory's root file, or a file of a partition directory.
_LogDirName = Annotated[str, msgspec.Meta(pattern=r"\Alog-dir-[0-9]{1,6}\Z")]
_FileName = Annotated[str, msgspec.Meta(pattern=r"\A(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,255}\Z")]


class BackupFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One file; an array, as there may be 100,000. ``crc32c`` None: a hard link, not read."""

    size_bytes: _NaturalNumber
    crc32c: int | None


class BackupPartition(msgspec.Struct, frozen=True):
    """One partition directory; offsets are those that it holds, the end exclusive."""

    topic: str
    partition: _NaturalNumber
    log_start_offset: int
    end_offset: int
    files: dict[_FileName, BackupFile]

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size_bytes for file in self.files.values())


class BackupLogDir(msgspec.Struct, frozen=True):
    """One log directory: ``name`` below the backup, ``source`` where it was taken from."""

    name: _LogDirName
    source: str
    files: dict[_FileName, BackupFile]
    partitions: tuple[BackupPartition, ...]


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True, rename={"is_complete": "complete"}):
    """``created_ms``: wall time at which the backup began."""

    format: int
    is_complete: bool
    note: str = "kafkalog restore reads this file. With complete=false this is not a backup."
    created_ms: int
    cluster_id: str
    log_dirs: tuple[BackupLogDir, ...]


class _Head(msgspec.Struct):
    format: int


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The whole file."""
    return msgspec.json.encode(manifest) + b"\n"


def decode_manifest(data: bytes) -> BackupManifest:
    """Reverse of encode_manifest. FormatError for anything else, also for names outside of it.

    A newer format is refused by its number.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format > FORMAT:
            raise FormatError(
                f"{_MESSAGE_WHOLE} has format {head.format}; this version knows up to {FORMAT}"
            )
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except msgspec.ValidationError as error:
        raise FormatError(f"{_MESSAGE_WHOLE} is malformed: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{_MESSAGE_WHOLE} is no JSON: {error}") from error
    for partition in (each for log_dir in manifest.log_dirs for each in log_dir.partitions):
        if topic_name_fault(partition.topic) is not None:
            raise FormatError(f"{_MESSAGE_WHOLE} names an impossible topic {partition.topic!r}")
    return manifest
