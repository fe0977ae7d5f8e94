"""Which gap between two segments is a loss: offsets that were acknowledged and that are gone.

Owns the rule. A gap is a loss when something proves that records were there:
  - The log is gapless (``LostRanges.proof``): nothing has taken offsets out of it since it was made
    here. ``log_proofs.stays_gapless`` says when that ends at a load, ``end_gapless`` when it ends
    while the log is served.
  - The offset index of the segment before the gap leads past its last byte.
  - The ``.log`` of a segment is missing under it.
  - A load finds what a missing segment left: an index, or the producer snapshot of its base offset
    (``find_lost``). Segments that retention deleted leave neither.
All other gaps are legal: compaction leaves them. A lost range is refused (LostOffsets) until an
operator accepts it by name; then it is a gap like any other.

``find_lost`` and the log lines are the loader's, on its thread. ``LostRanges`` is for any thread: a
read asks where it found nothing at the offset that it began with, never on the way of a fetch that
begins at a batch. Changes no file.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import LostOffsets
from kafkalog.format.disk.file_names import LOG_SUFFIX, segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.offset_ranges import LostRange, not_accepted
from kafkalog.log.segment.index_repair import has_whole_tail, next_offset, verified_floor
from kafkalog.log.values import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.local_log import LocalLog
    from kafkalog.log.segment.log_segment import LogSegment
    from kafkalog.log.values import LogProof

    NoteLost = Callable[[str, int, int | None], None]

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class LostRanges:
    """The lost ranges of one served log, and what proves them. At first nothing is known."""

    # constant after construction
    _topic_partition: TopicPartition
    _local: LocalLog
    _filesystem: Filesystem
    # published
    proof: LogProof
    _log_start_offset: int
    ranges: tuple[LostRange, ...] = ()  # that were not accepted
    _holes: dict[int, int] = field(default_factory=dict)  # first to last offset of all known ones

    # ---- what is known

    def note(self, first_offset: int, last_offset: int) -> None:
        """Refuse these offsets from now on, unless they were accepted; logged once. Any thread.

        What lies below the log start was deleted, and is not missed.
        """
        first_offset = max(first_offset, self._log_start_offset)
        if first_offset > last_offset or self._holes.get(first_offset, -1) >= last_offset:
            return
        self._holes[first_offset] = last_offset
        before = self.ranges
        self.publish()
        if self.ranges != before:
            _log.error(
                "lost_range_refused",
                partition=str(self._topic_partition),
                first_offset=first_offset,
                last_offset=last_offset,
            )

    def publish(self) -> None:
        """Let what was noted and accepted count.

        Another thread may note or accept meanwhile: what it changed is not undone here.
        """
        while True:
            proof, holes = self.proof, tuple(self._holes.items())
            self.ranges = not_accepted(holes, proof.accepted_losses)
            if proof is self.proof and len(holes) == len(self._holes):
                return

    def on_log_start(self, log_start_offset: int) -> None:
        """Forget what retention or an operator deleted. Writer thread."""
        self._log_start_offset = log_start_offset
        if self.ranges:
            holes = tuple(self._holes.items())  # readers may add one now
            self._holes = {first: last for first, last in holes if last >= log_start_offset}
            self.publish()

    def end_gapless(self) -> None:
        """The next change may leave a legal gap: neighbours prove no loss any more."""
        self.proof = replace(self.proof, is_gapless=False)

    def accept(self, lost: LostRange) -> None:
        """Note it in the proof; in force from ``publish`` on, once that is durable."""
        losses = (*self.proof.accepted_losses, lost)
        self.proof = replace(self.proof, accepted_losses=losses)

    def withdraw(self, lost: LostRange) -> None:
        """The acceptance could not be made durable."""
        losses = tuple(each for each in self.proof.accepted_losses if each != lost)
        self.proof = replace(self.proof, accepted_losses=losses)
        self.publish()

    # ---- what is asked

    def error(self, lost: LostRange) -> LostOffsets:
        """The refusal of a lost range."""
        at, (first, last) = self._topic_partition, lost
        return LostOffsets(
            f"Offsets {first} to {last} of partition {at} are lost: restore the file and restart, "
            "or accept the loss (kafkalog segments accept-loss "
            f"{at.topic} {at.partition} {first} {last})",
            file=f"{self._local.directory.path}/{segment_file_name(first, LOG_SUFFIX)}",
            position=0,
            topic=at.topic,
            partition=at.partition,
            first_offset=first,
            last_offset=last,
        )

    def require_legal_gap(self, offset: int, end_offset: int, *, may_block: bool) -> None:
        """LostOffsets when a range that overlaps [offset, end_offset), without records, is lost.

        WouldBlock when that has to be read and may_block is False.
        """
        self._refuse_known(offset, end_offset)
        until = min(end_offset, INT64_MAX - 1) + 1
        for segment, following in pairwise(self._local.segments.values_between(offset, until)):
            lost = self._lost_after(segment, following, may_block=may_block)
            if lost is not None:
                self.note(*lost)
        self._refuse_known(offset, end_offset)

    def refuse_missing(self, error: FileNotFoundError) -> None:
        """LostOffsets when the file that was not found is the ``.log`` of a segment.

        The caller knows that no deletion overtook the read. Returns for other files, and when the
        whole directory is gone, which is a failed disk rather than a loss.
        """
        name = str(error.filename).rpartition("/")[2]
        segments = self._local.segments.values
        for number, segment in enumerate(segments):
            if segment.log_file.name == name and self._is_missing(segment):
                is_active = number == len(segments) - 1
                end = self._local.log_end_offset
                if not is_active:
                    end = segments[number + 1].base_offset
                self.note(segment.base_offset, end - 1)
                self._refuse_known(segment.base_offset, end)

    def search(self) -> tuple[LostRange, ...]:
        """Inspect every closed segment; the lost ranges that were not accepted, now published.

        Blocks for a small read a segment. CorruptIndex, OSError.
        """
        while True:
            segments = self._local.segments.values
            found: list[LostRange] = []
            for segment, following in pairwise(segments):
                lost: LostRange | None = LostRange(segment.base_offset, following.base_offset - 1)
                if not self._is_missing(segment):
                    try:
                        lost = self._lost_after(segment, following, may_block=True)
                    except FileNotFoundError:
                        continue  # deleted meanwhile: see below
                if lost is not None:
                    found.append(lost)
            if self._local.segments.values[: len(segments)] == segments:
                break  # no deletion and no clean took one meanwhile
        for each in found:
            self.note(*each)
        return self.ranges

    def refuse_any(self) -> None:
        """LostOffsets for a log with lost ranges that were not accepted; see ``search``."""
        for lost in self.search():
            raise self.error(lost)

    def _refuse_known(self, offset: int, end_offset: int) -> None:
        for lost in self.ranges:
            if lost.last_offset >= offset and lost.first_offset < end_offset:
                raise self.error(lost)

    def _is_missing(self, segment: LogSegment) -> bool:
        exists = self._filesystem.exists
        return not segment.log_file.exists() and exists(self._local.directory.path)

    def _lost_after(
        self, segment: LogSegment, following: LogSegment, *, may_block: bool
    ) -> LostRange | None:
        """What is lost between the last batch of a closed segment and the next one's base."""
        known_offset = segment.base_offset  # a batch at or after it was there
        if not self.proof.is_gapless:
            cut_offset = _indexed_past_end(segment, may_block=may_block)
            if cut_offset is None:
                return None
            known_offset = cut_offset
        if not may_block:
            raise WouldBlock(segment.log_file.path)
        first_offset = segment.base_offset
        if segment.size_bytes:
            if not has_whole_tail(segment, verified_floor(segment, INT64_MAX).position):
                return None  # bytes are there: what they were is not lost, but damaged
            first_offset = next_offset(segment)
            if not self.proof.is_gapless and known_offset < first_offset:
                return None  # the index errs
        last_offset = following.base_offset - 1
        return LostRange(first_offset, last_offset) if first_offset <= last_offset else None


def _indexed_past_end(segment: LogSegment, *, may_block: bool) -> int | None:
    """Offset of a batch that an index of a closed segment has past its last byte."""
    if segment.offset_index.entry_count(may_block=may_block):
        last = segment.offset_index.last_entry(may_block=may_block)
        return last.offset if last.position >= segment.size_bytes else None
    if not segment.size_bytes and segment.time_index.entry_count(may_block=may_block):
        return segment.time_index.last_entry(may_block=may_block).offset
    return None


# ---- at a load


def find_lost(
    segments: Sequence[LogSegment],
    orphans: Iterable[int],
    snapshots: Iterable[int],
    proof: LogProof,
    *,
    first_epoch_start: int | None,
    start_offset: int,
    durable_end: int,
    may_have_gaps: bool,
) -> dict[int | None, int]:
    """Last to first offset of each hole that is proven; None: up to where the log ended.

    orphans            bases of indexes without a log
    snapshots          offsets of producer snapshots; nothing where compaction ``may_have_gaps``
    first_epoch_start  where the first leader epoch begins
    start_offset       below it nothing is missed
    durable_end        from here on a power cut may have taken records
    """
    strays = set[int]()
    if segments and not may_have_gaps:
        strays = {each for each in snapshots if segments[0].base_offset < each}
    lost = _left_over(
        segments, {*orphans}, strays, start_offset=start_offset, durable_end=durable_end
    )
    if proof.is_gapless and proof.end_offset is not None and segments:
        # At a clean stop the log start is that of the first segment, or lies above it. A Kafka that
        # has deleted the front since, and nothing else, has cut the leader epochs there.
        first_base = segments[0].base_offset
        if start_offset < first_base != first_epoch_start:
            lost.setdefault(first_base - 1, start_offset)
    for segment, following in pairwise(segments):
        base, end = segment.base_offset, following.base_offset
        if segment.size_bytes or start_offset >= end or base >= durable_end:
            continue
        if proof.is_gapless or _indexed_past_end(segment, may_block=True) is not None:
            lost.setdefault(end - 1, base)
    return lost


def _left_over(
    segments: Sequence[LogSegment],
    indexed: set[int],
    strays: set[int],
    *,
    start_offset: int,
    durable_end: int,
) -> dict[int | None, int]:
    """What indexes and snapshots prove that no segment reaches over."""
    bases = [segment.base_offset for segment in segments]
    lost: dict[int | None, int] = {}
    for offset in sorted(indexed | strays - {*bases}):
        following = bisect_right(bases, offset)
        last_offset = bases[following] - 1 if following < len(bases) else None
        if last_offset is None and offset not in indexed:
            continue  # a clean stop leaves one at the log end
        is_live = last_offset is None or last_offset >= start_offset
        if is_live and offset < durable_end and not _holds(segments, following - 1, offset):
            lost.setdefault(last_offset, offset)
    return lost


def _holds(segments: Sequence[LogSegment], slot: int, offset: int) -> bool:
    """Whether the segment before a left-over reaches over its offset."""
    if slot < 0:
        return False
    segment = segments[slot]
    position = verified_floor(segment, INT64_MAX).position  # a wrong entry proves no loss
    return has_whole_tail(segment, position) and next_offset(segment) > offset


def log_left_over(
    directory: str, found: dict[int | None, int], lost: Sequence[LostRange], note: NoteLost
) -> None:
    """The lines for what ``find_lost`` found, as far as it is among the ``lost`` ranges.

    How far a hole at the end of the log went is not known.
    """
    for last_offset, first_offset in found.items():
        path = f"{directory}/{segment_file_name(first_offset, LOG_SUFFIX)}"
        if last_offset is None:
            log_lost(path, 0, first_offset, last_offset, "kept", note)
            continue
        for each in lost:
            if first_offset <= each.last_offset and each.first_offset <= last_offset:
                first = max(first_offset, each.first_offset)
                log_lost(path, 0, first, min(last_offset, each.last_offset), "kept", note)


def log_lost(
    path: str,
    position: int,
    first_offset: int,
    last_offset: int | None,
    later_segments: str,
    note: NoteLost,
) -> None:
    """The line for one hole: where the log before it ends, or the one that is missing."""
    _log.error(
        "offsets_lost",
        path=path,
        position=position,
        first_offset=first_offset,
        last_offset=last_offset,
        later_segments=later_segments,
    )
    note(path, first_offset, last_offset)


def log_lost_end(active: LogSegment, log_end_offset: int, durable_end: int, note: NoteLost) -> None:
    """The line for a log that ends below what was durable."""
    if log_end_offset < durable_end:
        path = active.log_file.path
        _log.error(
            "durable_records_lost",
            directory=path.rpartition("/")[0],
            log_end_offset=log_end_offset,
            recovery_point=durable_end,
        )
        note(path, log_end_offset, durable_end - 1)
