"""Which files of a partition go into a backup, in which order, as a link or as a copy.

Pure: what the writer thread said of one moment (``PartitionState``) and a listing of the directory
in, files out. Rules:

* A closed segment's ``.log`` never changes again, so it may be a hard link. So may its ``.index``,
  ``.timeindex`` and the producer snapshots: a recovery may write them anew in place, but they are
  derived, and a restore leaves out those that have changed.
* ``.txnindex`` is copied: recovery writes it in place, and a start misses none that is gone.
* The active segment's ``.log``, ``.index`` and ``.timeindex`` are copied up to the end of the
  moment; its ``.txnindex`` is left out: the start recovers this segment from its batches.
* Newest first: what retention takes meanwhile is the oldest, and the rest is still a log.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DERIVED_SUFFIXES = frozenset({OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX})
# An index has at most an entry of 8 and one of 12 bytes every index.interval.bytes (4096): 1/204.
_LOG_BYTES_PER_INDEX_BYTE = 200


class How(enum.Enum):
    """How a file comes into the backup."""

    LINK = "link"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A log at one moment: segments as (base offset, bytes of the ``.log``), the last one active.

    ``end_offset`` is where the last segment ends after its bytes; all of it is durable and visible
    by the time anybody reads this. ``active_index_bytes``: entries of its offset and time index.
    ``snapshot_offsets`` rise.
    """

    segments: tuple[tuple[int, int], ...]
    active_index_bytes: tuple[int, int]
    log_start_offset: int
    end_offset: int
    snapshot_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """``size_bytes`` of a copy: that many from its beginning; of a link: what it must have."""

    name: str
    how: How
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """Files of one segment: all of them or none. ``size_bytes`` of its ``.log``."""

    base_offset: int
    files: tuple[PlannedFile, ...]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Segments from the newest on, without a hole; then the files that may be missing."""

    segments: tuple[PlannedSegment, ...]
    others: tuple[PlannedFile, ...]


def is_derived(name: str) -> bool:
    """Whether a start makes the file anew from the ``.log`` files when it is missing."""
    parsed = parse_segment_file(name)
    return parsed is not None and parsed.suffix in _DERIVED_SUFFIXES


def plan_partition(
    state: PartitionState, listing: Mapping[str, int], *, is_linked: bool
) -> PartitionPlan:
    """What to link and to copy; ``listing`` has the size of every file of the directory by name.

    A closed segment that is not in the listing ends the plan: older ones are not taken either.
    """
    *closed, (tail_base, tail_bytes) = state.segments
    link = How.LINK if is_linked else How.COPY
    tail_sizes = zip(
        (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX),
        (tail_bytes, *state.active_index_bytes),
        strict=True,
    )
    tail = tuple(
        PlannedFile(segment_file_name(tail_base, suffix), How.COPY, size_bytes)
        for suffix, size_bytes in tail_sizes
    )
    segments = [PlannedSegment(tail_base, tail)]
    for base_offset, size_bytes in reversed(closed):
        name = segment_file_name(base_offset, LOG_SUFFIX)
        if name not in listing:
            break
        # A file that was preallocated may be longer than what was written to it.
        how = link if listing[name] == size_bytes else How.COPY
        files = [PlannedFile(name, how, size_bytes)]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            name = segment_file_name(base_offset, suffix)
            if name in listing:
                how = How.COPY if suffix == TRANSACTION_INDEX_SUFFIX else link
                files.append(PlannedFile(name, how, listing[name]))
        segments.append(PlannedSegment(base_offset, tuple(files)))
    return PartitionPlan(tuple(segments), tuple(_others(state, listing, link)))


def _others(state: PartitionState, listing: Mapping[str, int], link: How) -> Iterator[PlannedFile]:
    """Snapshots that a start can use, and what says whose the directory is."""
    tail_base = state.segments[-1][0]
    for offset in state.snapshot_offsets:
        name = segment_file_name(offset, SNAPSHOT_SUFFIX)
        if state.log_start_offset < offset <= tail_base and name in listing:
            yield PlannedFile(name, link, listing[name])
    if PARTITION_METADATA in listing:
        yield PlannedFile(PARTITION_METADATA, How.COPY, listing[PARTITION_METADATA])


def copied_bytes(size_bytes: int, active_bytes: int, *, is_linked: bool) -> int:
    """About how much room a partition takes in the backup; ``size_bytes`` of all ``.log`` files."""
    if is_linked:
        return active_bytes
    return size_bytes + size_bytes // _LOG_BYTES_PER_INDEX_BYTE
