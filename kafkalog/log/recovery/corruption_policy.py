"""Rot or torn tail: what recovery does with the bad batches of a segment.

``kafka`` cuts the segment at the first one, as Kafka does. ``keep`` first asks what follows:
  - Rot of the base offset, the length or the magic leaves a batch whose CRC is right over the bytes
    up to its follower. What ``prefix_repair`` can prove is written back, so that every reader of
    the format can go on, Kafka too; the old bytes are kept.
  - When the declared size leads to a sound batch of later offsets, or to the end of a closed
    segment, bytes rotted that the CRC covers: nothing is cut, and readers of that batch alone get
    CorruptBatch with the offsets that its neighbours leave to it.
  - Other bytes before a sound batch are made one such batch, if they were durable once: no
    power cut took them. Its header alone is written.
  - Anything else is cut, and the cut bytes are kept.
Whether the segments after a cut stay is the loader's decision. Those that cannot be served are
deleted with ``kafka`` and set aside with ``keep``: renamed to ``<base>.log.behind-<offset>.torn``
(``drop``). Cut bytes are kept in ``<base>.log.<position>.torn``, synced before anything changes.
Kafka's loader ignores both names. Runs in the loader: recovery asks here where it meets a bad
batch. A crash leaves some of the names changed; the next load decides the same again, or removes
what is ``.deleted``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

from kafkalog.errors import CorruptBatch
from kafkalog.format.disk.file_names import DELETED_SUFFIX
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_scan import BatchColumn, ScanStop
from kafkalog.format.records.record_batch import (
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC,
    LEADER_EPOCH_AT,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    MAGIC_AT,
    MAGIC_V2,
    MalformedBatch,
    read_header,
)
from kafkalog.log.local_log import DELETE_FILE_TASK
from kafkalog.log.recovery.prefix_repair import (
    NO_ENDS,
    KnownEnds,
    bridge,
    later_batches,
    true_prefix,
    verified_base,
)
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.segment_file import has_message_at, read_chunk, scan_chunks
from kafkalog.log.segment.segment_recovery import BadBatch, BadSpot, Judge, StepOver
from kafkalog.log.values import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.env.filesystem import File, Filesystem
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.local_log import LogSegments
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.log_segment import LogSegment

_log = structlog.get_logger(__name__)

Corruption = Literal["kafka", "keep"]

TORN_SUFFIX = ".torn"
REPAIR_WINDOW_BYTES = 64 * 1024 * 1024  # a larger batch is not looked for


def judge(
    filesystem: Filesystem,
    segment: LogSegment,
    corruption: Corruption,
    end_offset: int,
    *,
    durable_end: int,
    known: KnownEnds = NO_ENDS,
    last_end: int = 0,
    next_base: int = 0,
) -> Judge:
    """Who decides for one segment; ``end_offset`` is where the next one begins, or INT64_MAX.

    No power cut took offsets below ``durable_end``. For the last segment: ``known`` may prove what
    its last batch was, but cuts nothing, and the log is durable up to ``last_end`` (0: not known);
    an empty segment of base ``next_base`` (0: none) follows.
    CorruptBatch for a message of format v0 or v1 whose CRC is wrong.
    """
    is_last = end_offset == INT64_MAX
    if corruption == "kafka":
        return Judge(partial(refuse_legacy, segment), end_offset, keeps_rot=False)

    def keep(bad: BadSpot) -> StepOver | None:
        if try_repair(filesystem, segment, bad, end_offset, known):
            return StepOver(0, bad.expected_offset)
        refuse_message(segment, bad)
        is_durable = bad.expected_offset < durable_end
        over = _over_rot(
            segment, bad, end_offset, last_end, max(last_end, next_base), is_durable=is_durable
        )
        if over is None and is_durable:
            over = _bridge(filesystem, segment, bad, end_offset, last_end)
        if over is None:
            file = segment.log_file.acquire()
            data = read_chunk(file, bad.position, file.size() - bad.position, may_block=True)
            path = keep_bytes(filesystem, segment, bad.position, data)
            _log.error("torn_tail_kept", path=path, bytes=len(data))
            return None
        _log.error(
            "rotten_batch_kept",
            path=segment.log_file.path,
            position=bad.position,
            base_offset=bad.expected_offset,
            last_offset=over.next_offset - 1,
        )
        return over

    def doubt(last: BadSpot, base_offset: int, last_offset: int) -> bool:
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True  # no append goes so far into a segment
        here = _known_at(segment, last.position, known)
        return here.contradict(last.expected_offset, base_offset, last_offset + 1)

    return Judge(keep, end_offset, keeps_rot=True, doubt=doubt if is_last else None)


def _known_at(segment: LogSegment, position: int, known: KnownEnds) -> KnownEnds:
    """With what the index says of the batch there; its file is still the one that was found."""
    entry = segment.offset_index.find_entry(position)
    return known if entry is None else replace(known, entry_end=entry.offset + 1)


def judge_before_split(filesystem: Filesystem, segment: LogSegment, corruption: Corruption) -> None:
    """A segment whose offsets overflow is cut by its split: judge its first bad batch before.

    CorruptBatch also when the batch only rotted: a split cannot keep it.
    """
    verdict = judge(filesystem, segment, corruption, INT64_MAX, durable_end=0).verdict
    while True:
        position, stop = 0, ScanStop.END
        for chunk in scan_chunks(
            segment.log_file, 0, segment.size_bytes, check_crc=True, with_messages=True
        ):
            position, stop = chunk.position + chunk.rows.consumed_bytes, chunk.rows.stop
        if position == segment.size_bytes:
            return
        why = BadBatch.PARTIAL if stop is ScanStop.END else BadBatch[stop.name]
        over = verdict(BadSpot(position, why, segment.base_offset))
        if over is None:
            return
        if over.size_bytes:
            raise CorruptBatch(
                "an offset is more than 2^31 - 1 above the segment's base, and batches rotted",
                file=segment.log_file.path,
                position=position,
            )


def refuse_legacy(segment: LogSegment, bad: BadSpot) -> None:
    """Of a damaged message of format v0 or v1 nothing is cut: the partition is not served."""
    if bad.why is BadBatch.LEGACY:
        raise CorruptBatch(
            "a message of format v0 or v1 fails its CRC: restore the file from another replica",
            file=segment.log_file.path,
            position=bad.position,
        )


def refuse_message(segment: LogSegment, bad: BadSpot) -> None:
    """As ``refuse_legacy``, but not for a batch whose magic rotted with more of it.

    Such a one has sound batches before or after it, and no messages of format v0 and v1.
    """
    if bad.why is not BadBatch.LEGACY:
        return
    window = _window_at(segment.log_file.acquire(), bad.position)
    is_alone = bad.position == 0 and not any(later_batches(window, bad.expected_offset, INT64_MAX))
    if is_alone or segment.holds_messages:
        refuse_legacy(segment, bad)


def note_messages(
    filesystem: Filesystem,
    segment: LogSegment,
    corruption: Corruption,
    end_of: Callable[[int], int],
) -> None:
    """Set ``holds_messages`` of a segment that begins with one of format v0 or v1.

    With 'keep' a magic that only rotted is repaired; ``end_of`` a base offset is where the next
    segment begins. CorruptBatch when it is neither.
    """
    if segment.size_bytes <= MAGIC_AT:
        return
    file = segment.log_file.acquire()
    head = file.pread(MAGIC_AT + 1, 0)
    length = int.from_bytes(head[LENGTH_AT:LEADER_EPOCH_AT], "big", signed=True)
    if len(head) <= MAGIC_AT or head[MAGIC_AT] >= MAGIC_V2 or length < LEGACY_LENGTH_MIN:
        return
    legacy = BadSpot(0, BadBatch.LEGACY, segment.base_offset)
    if has_message_at(file, 0):
        segment.holds_messages = True
    elif corruption == "kafka":
        refuse_legacy(segment, legacy)
    elif not try_repair(filesystem, segment, legacy, end_of(segment.base_offset)):
        refuse_message(segment, legacy)


def try_repair(
    filesystem: Filesystem,
    segment: LogSegment,
    bad: BadSpot,
    end_offset: int,
    known: KnownEnds = NO_ENDS,
) -> bool:
    """Write back base offset, length and magic where they can be proven; whether they were.

    Durable on return. A crash in between leaves bad bytes, with which the next load does the same.
    """
    file = segment.log_file.acquire()
    window = _window_at(file, bad.position, _span_of_pair(file, bad.position))
    is_whole = bad.position + len(window) == file.size()
    if end_offset == INT64_MAX:
        known = _known_at(segment, bad.position, known)
    prefix = true_prefix(window, bad.expected_offset, end_offset, known, is_whole=is_whole)
    if prefix is None:
        return False
    _write_prefix(filesystem, segment, bad.position, bytes(window[: len(prefix)]), prefix)
    return True


def _write_prefix(
    filesystem: Filesystem, segment: LogSegment, position: int, old: bytes, prefix: bytes
) -> None:
    """Replace the first bytes of a batch; durable on return, and so are the old ones."""
    kept = keep_bytes(filesystem, segment, position, old)
    log = segment.log_file.pin_for_write()
    log.pwrite(prefix, position)
    log.datasync()
    _log.warning(
        "batch_prefix_repaired",
        path=segment.log_file.path,
        position=position,
        base_offset=int.from_bytes(prefix[:LENGTH_AT], "big"),
        was=old.hex(),
        now=prefix.hex(),
        kept=kept,
    )


def repair_epochs(
    filesystem: Filesystem, segments: LogSegments, rotten: Iterable[tuple[int, int, int, int]]
) -> None:
    """Write back leader epochs, see ``RecoveredEpochs.correct``; as ``try_repair``."""
    for first_offset, end_offset, found, proven in rotten:
        for segment in segments.values_between(first_offset, end_offset):
            start = segment_reader.position_of(segment, first_offset)
            for chunk in scan_chunks(
                segment.log_file, start or 0, segment.size_bytes, check_crc=False
            ):
                bases = chunk.rows.column(BatchColumn.BASE_OFFSET)
                is_rotten = (bases >= first_offset) & (bases < end_offset)
                is_rotten &= chunk.rows.column(BatchColumn.LEADER_EPOCH) == found
                for at in chunk.rows.column(BatchColumn.POSITION)[is_rotten].tolist():
                    old = bytes(chunk.data[at : at + HEADER_UP_TO_MAGIC])
                    epoch = proven.to_bytes(MAGIC_AT - LEADER_EPOCH_AT, "big", signed=True)
                    prefix = old[:LEADER_EPOCH_AT] + epoch + old[MAGIC_AT:]
                    _write_prefix(filesystem, segment, chunk.position + at, old, prefix)
                if len(bases) and bases[-1] >= end_offset:
                    break


def _window_at(file: File, position: int, size: int | None = None) -> memoryview:
    """So many bytes of the file, at most what a repair looks at."""
    size = min(file.size() - position, size or REPAIR_WINDOW_BYTES)
    return read_chunk(file, position, size, may_block=True)


def _span_of_pair(file: File, position: int) -> int | None:
    """Bytes of a batch and its follower, if the declared size leads to one that is sound."""
    try:
        size = read_header(file.pread(HEADER_BYTES, position)).size_bytes
        follower = read_header(file.pread(HEADER_BYTES, position + size)).size_bytes
    except MalformedBatch:
        return None
    is_sound = _verified_base_at(file, position + size, INT64_MAX) is not None
    return size + follower if is_sound else None


def _over_rot(
    segment: LogSegment,
    bad: BadSpot,
    end_offset: int,
    last_end: int,
    reach: int,
    *,
    is_durable: bool,
) -> StepOver | None:
    """How to pass a batch whose declared size leads to what may follow it; None: a torn tail.

    ``reach``: the log ended there once, or an empty segment begins there.
    """
    if bad.why not in (BadBatch.BAD_CRC, BadBatch.BAD_OFFSET):
        return None
    file = segment.log_file.acquire()
    header = read_header(file.pread(HEADER_BYTES, bad.position))
    after = bad.position + header.size_bytes
    is_plausible = header.base_offset >= bad.expected_offset and header.last_offset_delta >= 0
    follower: int | None = end_offset
    is_end_in_header = is_plausible and header.next_offset == end_offset
    if after < file.size():
        follower = _verified_base_at(file, after, end_offset)
    elif bad.why is BadBatch.BAD_CRC and not is_durable and not is_end_in_header:
        return None  # the end of a file may be torn
    if follower in (None, INT64_MAX) and bad.why is BadBatch.BAD_OFFSET:
        if not is_durable and _repeats_earlier(segment, bad.position):
            return None
        # Its CRC holds: no crash tore it. All that is known of its offsets is how low they may be.
        # One is left free after them, or what follows next would look like a proof that they were.
        follower = max(bad.expected_offset + header.last_offset_delta + 2, reach)
        entry = segment.offset_index.find_entry(bad.position)
        if entry is not None and entry.offset - bad.expected_offset <= INT32_MAX:
            follower = max(follower, entry.offset + 1)
        follower = min(follower, end_offset)
    elif follower == INT64_MAX:
        follower = last_end
    if follower is None or follower <= bad.expected_offset:
        return None
    is_believed = is_plausible and bad.why is BadBatch.BAD_CRC
    if is_believed and header.next_offset <= follower:
        return StepOver(header.size_bytes, header.next_offset)
    return StepOver(header.size_bytes, follower)


def _repeats_earlier(segment: LogSegment, position: int) -> bool:
    """Whether the batch there is one that lies before it: old bytes, none that rotted."""
    head = segment.log_file.acquire().pread(HEADER_BYTES, position)
    base_offset = read_header(head).base_offset
    for chunk in scan_chunks(segment.log_file, 0, position, check_crc=False):
        same = chunk.rows.column(BatchColumn.BASE_OFFSET) == base_offset
        for at in chunk.rows.column(BatchColumn.POSITION)[same].tolist():
            return bool(chunk.data[at : at + HEADER_BYTES] == head)
    return False


def _bridge(
    filesystem: Filesystem, segment: LogSegment, bad: BadSpot, end_offset: int, last_end: int
) -> StepOver | None:
    """Lead over bytes that are no batches to the next sound one; None: there is none near.

    In the last segment also to the end of the file, over offsets that were durable.
    """
    file = segment.log_file.acquire()
    window = _window_at(file, bad.position)
    found = next(later_batches(window, bad.expected_offset, end_offset), None)
    if found is None:
        is_whole = bad.position + len(window) == file.size() and len(window) >= HEADER_BYTES
        if end_offset != INT64_MAX or not is_whole or last_end <= bad.expected_offset:
            return None
        found = len(window), last_end
    size, next_offset = found
    keep_bytes(filesystem, segment, bad.position, window[:size])
    log = segment.log_file.pin_for_write()
    log.pwrite(bridge(window[:size], bad.expected_offset, next_offset), bad.position)
    log.datasync()
    return StepOver(size, next_offset)


def _verified_base_at(file: File, position: int, end_offset: int) -> int | None:
    """Base offset of the sound batch at a position of the file."""
    try:
        size = read_header(file.pread(HEADER_BYTES, position)).size_bytes
    except MalformedBatch:
        return None
    if size > file.size() - position:
        return None
    return verified_base(memoryview(file.pread(size, position)), 0, end_offset)


def keep_bytes(
    filesystem: Filesystem, segment: LogSegment, position: int, data: bytes | memoryview
) -> str:
    """Write them to a separate file, unless an earlier try did already; its path."""
    path = first = f"{segment.log_file.path}.{position}{TORN_SUFFIX}"
    count = 1
    while filesystem.exists(path):
        if filesystem.read_file(path) == data:
            return path
        count += 1
        path = f"{first}.{count}"
    file = filesystem.open_write(path)
    file.pwrite(data, 0)
    file.sync()
    file.close()
    return path


# ---- segments after a hole


def drop(
    environment: LogEnvironment,
    config: LogConfig,
    segments: Sequence[LogSegment],
    corruption: Corruption,
    end_offset: int,
) -> None:
    """Take segments, which are in no set any more, out of service; the log ends at end_offset.

    Durable on return: their offsets are given to other records, and the old ones must not return.
    """
    if not segments:
        return
    rename(environment.filesystem, segments, corruption, end_offset)
    segments[0].log_file.sync_name()
    if corruption == "keep":
        return

    def delete_files() -> None:
        for segment in segments:
            segment.delete_files()

    environment.scheduler.schedule_once(
        DELETE_FILE_TASK, environment.guarded(delete_files), config.file_delete_delay_ms
    )


def rename(
    filesystem: Filesystem, segments: Sequence[LogSegment], corruption: Corruption, end_offset: int
) -> None:
    """Only the names; the next load of the directory removes what is ``.deleted``."""
    for segment in segments:
        if corruption == "kafka":
            segment.change_suffix(DELETED_SUFFIX)
            continue
        segment.change_suffix(_free_suffix(filesystem, segment, end_offset))
        segment.close_handles()
        _log.error("segment_set_aside", path=segment.log_file.path)


def _free_suffix(filesystem: Filesystem, segment: LogSegment, end_offset: int) -> str:
    """One under which nothing lies yet."""
    suffix, count = f".behind-{end_offset}{TORN_SUFFIX}", 1
    while filesystem.exists(f"{segment.log_file.path}{suffix}"):
        count += 1
        suffix = f".behind-{end_offset}.{count}{TORN_SUFFIX}"
    return suffix
