"""Facts of partition directories that need no log object, and which directories exclude each other.

``kafkalog segments list`` and forecasts of retention read sizes and names from the listing. For a
forecast the largest timestamp of a closed segment is the last entry of its time index, and batch
headers where that says nothing and at the end of the last segment. Indexes are believed and no CRC
is checked: these are forecasts, not deletions, and damage is the business of ``segment_check``.
Files that are set aside (``.deleted``) or not yet in place (``.cleaned``, ``.swap``) are listed.

``proof_of`` reads what ``kafkalog.checkpoint`` proves of a log, ``known_lost`` which ``.log`` files
are missing.

No log directory may be another one or lie in it: a start would take the inner one for a partition
of the outer one, a backup or a restore would fill a directory that is served. Paths are compared
after links are resolved; a directory that is mounted at two places is known by its lock alone.
Kafka refuses one path twice, and its broker ends at an inner directory that is named like no
partition.

Reads only; a directory may be served meanwhile. Any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from kafkalog.errors import InvalidConfig
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE, RESTORE_MARKER
from kafkalog.format.disk.checkpoints import decode_leader_epochs, decode_offsets
from kafkalog.format.disk.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_PROOFS,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.disk.index_entries import unpack_offset_entries, unpack_time_entries
from kafkalog.format.disk.log_proofs import NOTHING_PROVEN, LogKey, decode_proofs, stays_gapless
from kafkalog.format.disk.properties import decode_meta_properties, decode_partition_metadata
from kafkalog.format.integers import INT64_MAX, FormatError
from kafkalog.format.offset_ranges import not_accepted
from kafkalog.format.records.batch_scan import BatchColumn, has_messages, walk
from kafkalog.format.topic_names import encode_id, parse_directory_name
from kafkalog.log.inspect.record_count import oldest_in, records_in
from kafkalog.log.retention.plan import LogFacts, SegmentFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkalog.env.filesystem import FileStat, Filesystem, ReadableFile, ReadFilesystem
    from kafkalog.format.disk.file_names import SegmentFileName
    from kafkalog.format.disk.log_proofs import CheckedOffsets
    from kafkalog.format.records.batch_scan import ScannedChunk


T = TypeVar("T")

CHUNK_BYTES = 8 << 20


def directory_facts(
    path: str, filesystem: ReadFilesystem, log_start_offset: int, high_watermark: int | None
) -> LogFacts | None:
    """The facts of a directory; None when no segment lies there. OSError.

    The log start is at least the first segment's base, as at a start; a high watermark that is not
    known, or lies above the log end, is the log end.
    """
    files = {each.name: each for each in filesystem.list_dir_stats(path)}
    bases = segment_bases(files)
    if not bases:
        return None
    segments: list[SegmentFacts] = []
    end_offset = bases[-1]
    for base in bases:
        is_last = base == bases[-1]
        stat = files[segment_file_name(base, LOG_SUFFIX)]
        largest = _last_timestamp(path, filesystem, base, files)
        if is_last or largest < 0:
            next_offset, newest = _read_headers(
                path, filesystem, base, is_tail=is_last and largest >= 0
            )
            largest, end_offset = max(largest, newest), max(end_offset, next_offset)
        shown = largest if largest >= 0 else stat.mtime_ms
        segments.append(SegmentFacts(base, stat.size, shown))
    known = end_offset if high_watermark is None else min(high_watermark, end_offset)
    return LogFacts(
        segments=tuple(segments),
        size_bytes=sum(each.size_bytes for each in segments),
        log_start_offset=max(log_start_offset, bases[0]),
        high_watermark=known,
        log_end_offset=end_offset,
    )


def segment_bases(file_names: Iterable[str]) -> list[int]:
    """Base offsets of the segments that are in place, rising."""
    return sorted(_offsets_of(file_names, LOG_SUFFIX))


def _offsets_of(file_names: Iterable[str], *suffixes: str) -> set[int]:
    """Of the files in place with these suffixes."""
    names = (_named(each, *suffixes) for each in file_names)
    return {name.offset for name in names if name and not name.stage}


def _named(file_name: str, *suffixes: str) -> SegmentFileName | None:
    """None for a file with none of these suffixes; a wrong name is reported by ``verify``."""
    try:
        name = parse_segment_file(file_name)
    except FormatError:
        return None
    return name if name is not None and name.suffix in suffixes else None


def _last_timestamp(
    path: str, filesystem: ReadFilesystem, base: int, files: Mapping[str, FileStat]
) -> int:
    """Of the last entry of the time index that is not padding; -1 without one."""
    name = segment_file_name(base, TIME_INDEX_SUFFIX)
    if name not in files:
        return -1
    timestamps = unpack_time_entries(filesystem.read_file(f"{path}/{name}"))[:, 0]
    used = np.flatnonzero(timestamps)
    return int(timestamps[used[-1]]) if len(used) else -1


def _read_headers(
    path: str, filesystem: ReadFilesystem, base: int, *, is_tail: bool
) -> tuple[int, int]:
    """The offset after the last batch, and the largest timestamp, -1 for none.

    Walks the batches, with is_tail only those from the last entry of the offset index on.
    """
    position = _last_position(path, filesystem, base) if is_tail else 0
    file = filesystem.open_read(f"{path}/{segment_file_name(base, LOG_SUFFIX)}")
    next_offset, largest = base, -1
    # A torn tail, or damage, ends the walk: nothing is believed after it.
    for chunk in _walk(file, position):
        rows = chunk.rows
        if rows.count:
            next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
            largest = max(largest, int(rows.column(BatchColumn.MAX_TIMESTAMP).max()))
    file.close()
    return next_offset, largest


def _walk(file: ReadableFile, position: int) -> Iterator[ScannedChunk]:
    """All batches from position on, messages of format v0 and v1 among them."""
    return walk(
        file.pread,
        position,
        file.size(),
        check_crc=False,
        chunk_bytes=CHUNK_BYTES,
        with_messages=True,
    )


def _last_position(path: str, filesystem: ReadFilesystem, base: int) -> int:
    """Where the batch of the last entry of the offset index begins; 0 without one."""
    try:
        raw = filesystem.read_file(f"{path}/{segment_file_name(base, OFFSET_INDEX_SUFFIX)}")
    except FileNotFoundError:
        return 0
    positions = unpack_offset_entries(raw)[:, 1]
    used = np.flatnonzero(positions)
    return int(positions[used[-1]]) if len(used) else 0


class SegmentSummary(NamedTuple):
    """One ``.log`` file.

    is_old            holds messages of format v0 or v1; a compressed one counts as one record
    stage             empty, or what its name ends with: .deleted, .cleaned, .swap
    next_offset       after its last whole batch
    size_bytes        of the file; whole_bytes of them are batches
    records           that are no transaction markers
    oldest_ms         of the first record, newest_ms the largest of all; None without any, and where
                      the first record's batch cannot be opened
    """

    base_offset: int
    stage: str
    is_last: bool
    is_old: bool
    next_offset: int
    size_bytes: int
    whole_bytes: int
    batches: int
    records: int
    oldest_ms: int | None
    newest_ms: int | None


def summarize_segments(path: str, filesystem: ReadFilesystem) -> Iterator[SegmentSummary]:
    """Every segment of a partition directory by base offset; OSError."""
    files = [stat.name for stat in filesystem.list_dir_stats(path) if stat.is_file]
    names = [name for file in files if (name := _named(file, LOG_SUFFIX)) is not None]
    last = max((name.offset for name in names if not name.stage), default=None)
    for name in sorted(names, key=lambda each: (each.offset, each.stage)):
        is_last = not name.stage and name.offset == last
        yield _summarize(f"{path}/{name}", filesystem, name, is_last=is_last)


def _summarize(
    file_path: str, filesystem: ReadFilesystem, name: SegmentFileName, *, is_last: bool
) -> SegmentSummary:
    file = filesystem.open_read(file_path)
    try:
        size_bytes = file.size()
        position, batches, records, next_offset, is_old = 0, 0, 0, name.offset, False
        oldest_ms: int | None = None
        newest_ms = -1
        for chunk in _walk(file, 0):
            rows = chunk.rows
            if rows.count:
                is_old = is_old or has_messages(rows)
                batches += rows.count
                records += records_in(rows, rows.count)
                next_offset = int(rows.column(BatchColumn.LAST_OFFSET)[-1]) + 1
                newest_ms = max(newest_ms, int(rows.column(BatchColumn.MAX_TIMESTAMP).max()))
                if oldest_ms is None:
                    oldest_ms = oldest_in(chunk.data, rows)
            position = chunk.position + rows.consumed_bytes
    finally:
        file.close()
    return SegmentSummary(
        name.offset, name.stage, is_last, is_old, next_offset, size_bytes, position, batches,
        records,
        oldest_ms if oldest_ms is not None and oldest_ms >= 0 else None,
        newest_ms if newest_ms >= 0 else None,
    )  # fmt: skip


_MARKS = (META_PROPERTIES, RESTORE_MARKER)


def lies_in(path: str, directory: str) -> bool:
    """Whether one real path is the other, or below it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def log_dir_path(filesystem: ReadFilesystem, entry: str) -> str:
    """An entry of ``log.dirs`` as the path it is known by: absolute, without a slash at its end."""
    return absolute_log_dir(entry if entry.startswith("/") else filesystem.real_path(entry))


def absolute_log_dir(path: str) -> str:
    """An absolute path without a slash at its end."""
    return path.rstrip("/") or "/"


def check_apart(filesystem: ReadFilesystem, entries: Iterable[str]) -> None:
    """InvalidConfig unless the entries of ``log.dirs`` are apart; one path twice is one entry.

    One that is a partition would become a log directory in another one: refused, too. So is a
    backup, whose files may be those of a daemon.
    """
    paths = dict.fromkeys(log_dir_path(filesystem, entry) for entry in entries)
    real_paths = {path: filesystem.real_path(path) for path in paths}
    seen: dict[str, str] = {}
    for path, real in real_paths.items():
        if _is_partition(filesystem, real):
            raise InvalidConfig(
                f"log.dirs names {path}, which is the directory of a partition: name the log "
                "directory around it",
                value=path,
            )
        fault = backup_fault(filesystem, real)
        if fault is not None:
            raise InvalidConfig(f"log.dirs names {path}, which {fault}", value=path)
        for other, other_real in seen.items():
            if real == other_real:
                raise InvalidConfig(f"log.dirs names {other} twice: as {path}", value=path)
            for inner, outer in ((path, other), (other, path)):
                if lies_in(real_paths[inner], real_paths[outer]):
                    raise InvalidConfig(
                        f"log.dirs names {inner}, which lies in {outer}: no log directory may lie "
                        "in another one. Move it out of there.",
                        value=inner,
                    )
        seen[path] = real


def _is_partition(filesystem: ReadFilesystem, directory: str) -> bool:
    return _exists(filesystem, f"{directory}/{PARTITION_METADATA}")


def backup_fault(filesystem: ReadFilesystem, real_path: str) -> str | None:
    """Why nothing may write to a directory: it is a backup, or a log directory of one."""
    parent = real_path.rpartition("/")[0]
    for place, fault in ((real_path, "is a backup"), (parent, "is a log directory of a backup")):
        if _exists(filesystem, f"{place}/{MANIFEST_FILE}"):
            return f"{fault}: make log directories of it with kafkalog restore {place} --to LOGDIR"
    return None


def _exists(filesystem: ReadFilesystem, path: str) -> bool:
    """As far as can be seen: what is wrong with a disk is reported when the directory is opened."""
    try:
        return filesystem.exists(path)
    except OSError:
        return False


def enclosing_log_dir(filesystem: Filesystem, real_path: str) -> str | None:
    """The log directory that a real path lies in, as far as its files tell; unguarded.

    Known by ``meta.properties``, which every directory has that served, or by the mark of a restore
    that has not ended.
    """
    directory = real_path
    while directory:
        directory = directory.rpartition("/")[0]
        if any(filesystem.exists(f"{directory}/{name}") for name in _MARKS):
            return directory or "/"
    return None


def known_lost(path: str, filesystem: ReadFilesystem) -> tuple[tuple[int, int | None], ...]:
    """First and last offset of what an index without a ``.log`` proves lost, unless accepted.

    None: up to where the log ended. Below the log start nothing is missed. Reads the last batch
    headers before each hole, nothing where there is none. A file that was cut is not noticed.
    OSError.
    """
    found = _orphans(path, filesystem)
    # A daemon renames the files of a segment one after the other.
    orphans = sorted(found & _orphans(path, filesystem)) if found else []
    if not orphans:
        return ()
    proof = proof_of(filesystem, path)
    bases = segment_bases(filesystem.list_dir(path))
    holes: list[tuple[int, int]] = []
    for offset in orphans:
        following = bisect_right(bases, offset)
        last_offset = bases[following] - 1 if following < len(bases) else INT64_MAX
        is_held = following > 0 and (
            _read_headers(path, filesystem, bases[following - 1], is_tail=True)[0] > offset
        )
        if not is_held and last_offset >= (proof.log_start_offset or 0):
            holes.append((offset, last_offset))
    return tuple(
        (first, last if last < INT64_MAX else None)
        for first, last in not_accepted(holes, proof.accepted_losses)
    )


def _orphans(path: str, filesystem: ReadFilesystem) -> set[int]:
    """Base offsets of indexes without a ``.log``."""
    names = filesystem.list_dir(path)
    indexed = _offsets_of(names, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    return indexed - _offsets_of(names, LOG_SUFFIX)


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
    if meta.directory_id is None or encode_id(meta.directory_id) != directory_id:
        return NOTHING_PROVEN
    proof = entries.get(LogKey(topic_id, partition.partition), NOTHING_PROVEN)
    if not proof.is_gapless:
        return proof
    cleaned = _read(filesystem, f"{log_dir}/{CLEANER_OFFSET_CHECKPOINT}", decode_offsets)
    epochs = _read(filesystem, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", decode_leader_epochs)
    is_gapless = stays_gapless(
        proof.is_gapless,
        was_cleaned=partition in (cleaned or ()),
        epochs=[epoch for epoch, _ in epochs or ()],
    )
    return replace(proof, is_gapless=is_gapless)


def _read(filesystem: ReadFilesystem, path: str, decode: Callable[[bytes], T]) -> T | None:
    """A checkpoint; None where there is none that can be read."""
    try:
        return decode(filesystem.read_file(path))
    except (FileNotFoundError, IsADirectoryError, FormatError):
        return None
