"""The manifest of a backup: its files, their lengths, and whether the backup is complete.

One JSON object in the root of a backup. It is written first with ``complete`` false and replaced as
the last step: a directory whose manifest does not say ``complete`` is no backup. Pure functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, topic_name_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST_FILE = "kafkalog-backup.json"
RESTORE_MARKER = "kafkalog.restoring"  # in a log directory that is being restored
FORMAT = 1

# What a restore may create: a log directory's root file, or a file of a partition directory.
_LOG_DIR_NAME = re.compile(r"log-dir-[0-9]{1,6}")
_FILE_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_MESSAGE_WHOLE = "The manifest of the backup"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file. ``crc32c`` None: a hard link, whose bytes were not read."""

    name: str
    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class BackupPartition:
    """One partition directory; offsets are those that it holds, the end exclusive."""

    topic_partition: TopicPartition
    log_start_offset: int
    end_offset: int
    files: tuple[BackupFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class BackupLogDir:
    """One log directory: ``name`` below the backup, ``source`` where it was taken from."""

    name: str
    source: str
    files: tuple[BackupFile, ...]
    partitions: tuple[BackupPartition, ...]


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """``created_ms``: wall time at which the backup began."""

    is_complete: bool
    created_ms: int
    cluster_id: str
    log_dirs: tuple[BackupLogDir, ...] = ()


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The whole file."""
    body = {
        "format": FORMAT,
        "complete": manifest.is_complete,
        "note": "kafkalog restore reads this file. With complete=false this is not a backup.",
        "created_ms": manifest.created_ms,
        "cluster_id": manifest.cluster_id,
        "log_dirs": [
            {
                "name": log_dir.name,
                "source": log_dir.source,
                "files": _encode_files(log_dir.files),
                "partitions": [
                    {
                        "topic": partition.topic_partition.topic,
                        "partition": partition.topic_partition.partition,
                        "log_start_offset": partition.log_start_offset,
                        "end_offset": partition.end_offset,
                        "files": _encode_files(partition.files),
                    }
                    for partition in log_dir.partitions
                ],
            }
            for log_dir in manifest.log_dirs
        ],
    }
    # json would take ten times as long for a hundred thousand files.
    return msgspec.json.encode(body) + b"\n"


def decode_manifest(data: bytes) -> BackupManifest:
    """Reverse of encode_manifest. FormatError for anything else, also for names outside of it.

    A newer format is refused by its number.
    """
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{_MESSAGE_WHOLE} is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise FormatError(f"{_MESSAGE_WHOLE} is no JSON object")
    if _field(body, "format", int) > FORMAT:
        raise FormatError(
            f"{_MESSAGE_WHOLE} has format {body['format']}; this version knows up to {FORMAT}"
        )
    return BackupManifest(
        is_complete=_field(body, "complete", bool),
        created_ms=_field(body, "created_ms", int),
        cluster_id=_field(body, "cluster_id", str),
        log_dirs=tuple(_decode_log_dir(each) for each in _field(body, "log_dirs", list)),
    )


def _encode_files(files: tuple[BackupFile, ...]) -> dict[str, list[int | None]]:
    """Size and CRC-32C by name: there may be a hundred thousand of them."""
    return {file.name: [file.size_bytes, file.crc32c] for file in files}


def _decode_log_dir(body: object) -> BackupLogDir:
    name = _field(body, "name", str)
    if not _LOG_DIR_NAME.fullmatch(name):
        raise FormatError(f"{_MESSAGE_WHOLE} names an impossible directory {name!r}")
    return BackupLogDir(
        name=name,
        source=_field(body, "source", str),
        files=_decode_files(_field(body, "files", dict)),
        partitions=tuple(_decode_partition(each) for each in _field(body, "partitions", list)),
    )


def _decode_partition(body: object) -> BackupPartition:
    topic, number = _field(body, "topic", str), _field(body, "partition", int)
    fault = topic_name_fault(topic)
    if fault is not None or number < 0:
        raise FormatError(f"{_MESSAGE_WHOLE} names an impossible partition {topic!r} {number}")
    return BackupPartition(
        topic_partition=TopicPartition(topic, number),
        log_start_offset=_field(body, "log_start_offset", int),
        end_offset=_field(body, "end_offset", int),
        files=_decode_files(_field(body, "files", dict)),
    )


def _decode_files(body: Mapping[str, object]) -> tuple[BackupFile, ...]:
    files = []
    for name, facts in body.items():
        if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
            raise FormatError(f"{_MESSAGE_WHOLE} names an impossible file {name!r}")
        match facts:
            case [int(size_bytes), int() | None as crc] if size_bytes >= 0:
                files.append(BackupFile(name, size_bytes, crc))
            case _:
                raise FormatError(f"{_MESSAGE_WHOLE} has a malformed entry for {name!r}")
    return tuple(files)


def _field(body: object, name: str, kind: type[T]) -> T:
    """A field of an object; FormatError unless it is of that type."""
    value: Any = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"{_MESSAGE_WHOLE} has no proper '{name}'")
    return value
