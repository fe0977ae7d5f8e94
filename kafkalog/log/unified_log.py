"""UnifiedLog: one partition as everybody above sees it.

Owns the log start offset, the high watermark, the last stable offset, producer state and epochs of
one partition, on top of a LocalLog. Knows no other partition, no queue, no fsync: a flush is
planned here and run elsewhere. Changes are the writer thread's. Reads are for any thread, take no
lock and see what was published last; a read during which a deletion or a clean took a segment away
is repeated (``_undisturbed``).

Order inside an append: epoch cache, size of the set, roll, duplicate and sequence checks, bytes,
log end, producer state, transaction index, first unstable offset, high watermark. A refused append
leaves no record; a failed write leaves the log as it was (LocalLog), and a failure *after* the
bytes marks the log broken, so that no offset is given twice (KAFKA-7866).

High watermark (one replica): the log end, but never above the first batch that was appended with
``synced=True`` and is not flushed yet, so no reader sees what a power cut could take back.
Source: Kafka's UnifiedLog (4.1).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

import structlog

from kafkalog.errors import (
    CorruptBatch,
    ExpectedOffsetMismatch,
    InvalidRequest,
    LogDirOffline,
    OffsetAboveHighWatermark,
    OffsetAboveLogEnd,
    OffsetBelowLogStart,
    PolicyViolation,
    RecordSetTooLarge,
)
from kafkalog.format.integers import INT64_MAX
from kafkalog.log import append as append_plan, kafka_messages
from kafkalog.log.flush_plan import FlushPlan
from kafkalog.log.lost_ranges import LostRanges
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.index_repair import next_offset
from kafkalog.log.values import (
    NO_PROOF,
    NO_TIMESTAMP,
    FetchDataInfo,
    FetchSpan,
    Isolation,
    LogProof,
    TimestampOffset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.errors import KafkalogError
    from kafkalog.format.offset_ranges import LostRange
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.append import AppendGroup, JoinedBatches, ProducerChanges
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.local_log import LocalLog, LogSegments
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.segment.log_segment import LogSegment, SegmentRoom
    from kafkalog.log.state.leader_epoch_cache import LeaderEpochCache
    from kafkalog.log.state.producer_state_manager import ProducerStateManager
    from kafkalog.log.values import AbortedTransaction, LogAppendInfo, ValidatedRecords


_log = structlog.get_logger(__name__)

DELETE_SNAPSHOT_TASK = "delete-producer-snapshot"
HIGH_WATERMARK = -1  # as the offset of delete_records


Found = TypeVar("Found")

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


class UnifiedLog:
    """See the module. Made by ``log_loader.load_log``."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        environment: LogEnvironment,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        topic_id: str | None = None,
        proof: LogProof = NO_PROOF,
        disputed_start_offset: int | None = None,
    ) -> None:
        """The high watermark begins at the log start; the owner sets it."""
        # constant after construction
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.environment = environment
        self.local = local
        self.epochs = epochs
        self.parent_dir = local.directory.path.rpartition("/")[0]  # the log directory
        # owned by the writer thread
        self.producers = producers
        self._unsynced: deque[int] = deque()  # base offsets of synced appends before their flush
        self._broken: str | None = None
        # Why nothing is changed any more: its topic is deleted, or its partition moves.
        self.refusal: Callable[[], KafkalogError] | None = None
        if producers.unsynced_paths:
            local.note_name_change()  # the load wrote them
        # published to readers
        # Lower than the log start, by a file that cannot have rotted: nothing may be deleted.
        self.disputed_start_offset = disputed_start_offset
        self.log_start_offset = log_start_offset
        self.durable_start_offset = -1  # what the checked checkpoint is known to hold
        self.high_watermark = log_start_offset
        self._first_unstable_offset: int | None = producers.first_unstable_offset
        self.losses = LostRanges(
            topic_partition, local, environment.filesystem, proof, log_start_offset
        )

    # ---- what anybody may ask

    @property
    def directory(self) -> str:
        """Absolute path of the partition directory."""
        return self.local.directory.path

    @property
    def config(self) -> LogConfig:
        """The topic's configuration."""
        return self.local.config

    @property
    def segments(self) -> LogSegments:
        """All segments."""
        return self.local.segments

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything live below is durable."""
        return max(self.local.recovery_point, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files."""
        return self.local.size_bytes

    def description(self) -> str:
        """As Kafka's log lines name it (``UnifiedLog.toString``)."""
        topic_id = "" if self.topic_id is None else f", topicId={self.topic_id}"
        name = self.topic_partition
        return (
            f"Log(dir={self.directory}{topic_id}, topic={name.topic}, partition={name.partition}, "
            f"highWatermark={self.high_watermark}, lastStableOffset={self.last_stable_offset}, "
            f"logStartOffset={self.log_start_offset}, logEndOffset={self.log_end_offset})"
        )

    @property
    def last_stable_offset(self) -> int:
        """First live offset of an open transaction, at most the high watermark."""
        # In this order: a transaction that begins below a high watermark is published before it.
        high_watermark = self.high_watermark
        first = self._first_unstable_offset
        if first is None:
            return high_watermark
        return min(max(first, self.log_start_offset), high_watermark)

    @property
    def is_broken(self) -> bool:
        """Whether a failed write left something that only a reload can repair."""
        return self._broken is not None or self.local.active_segment.is_broken

    # ---- read

    def limit_of(self, isolation: Isolation) -> int:
        """First offset that a reader of this isolation may not see."""
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.last_stable_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        min_one_batch: bool = True,
        may_block: bool = True,
        remembers: bool = False,
    ) -> FetchDataInfo:
        """Whole batches of one segment, from the one that holds the least live offset >= offset.

        Empty at and after the limit of the isolation. ``remembers``: see ``read_checked``. Raises
        OffsetBelowLogStart, OffsetAboveLogEnd, CorruptBatch, UnsupportedMessageFormat, LostOffsets
        where the next batch lies after a lost range, and WouldBlock when may_block is False.
        """
        assert max_bytes >= 0

        def look() -> FetchDataInfo:
            limit = self.limit_of(isolation)
            self.check_bounds(offset)
            if offset >= limit:
                return self._answer(memoryview(b""), offset, offset)
            found = self.local.read(
                offset,
                max_bytes,
                max_offset=limit,
                min_one_batch=min_one_batch,
                may_block=may_block,
                remembers=remembers,
            )
            if found is None or found.base_offset > offset:
                end_offset = limit if found is None else found.base_offset
                self.losses.require_legal_gap(offset, end_offset, may_block=may_block)
            if found is None:
                return self._answer(memoryview(b""), offset, offset)
            aborted: Sequence[AbortedTransaction] = ()
            if isolation is Isolation.LAST_STABLE and found.data:
                aborted = self.local.collect_aborted(offset, found.next_offset, may_block=may_block)
            return self._answer(found.data, found.base_offset, found.next_offset, aborted)

        def is_whole(info: FetchDataInfo) -> bool:
            # A batch after the offset may be the first one because what lay between was taken, and
            # aborted transactions are looked up in the segments that are there then.
            is_committed = isolation is Isolation.LAST_STABLE
            return len(info.data) > 0 and info.base_offset <= offset and not is_committed

        return self._undisturbed(look, is_whole)

    def read_checked(self, offset: int, max_bytes: int) -> FetchSpan | None:
        """Where the file has what ``read`` answers; None: ``read`` has to look.

        Only batches whose CRC was checked, by a ``read`` that remembers or before they were
        written, since the file was opened; and only from the page cache.
        """
        limit = self.limit_of(Isolation.HIGH_WATERMARK)
        if not self.log_start_offset <= offset < limit:
            return None
        found = self.local.read_checked(offset, max_bytes, max_offset=limit)
        if found is None:
            return None
        file, descriptor, (position, size_bytes, base_offset, next_offset) = found
        return FetchSpan(
            file,
            descriptor,
            position,
            size_bytes,
            base_offset,
            next_offset,
            self.high_watermark,
            self.log_start_offset,
        )

    def _undisturbed(self, look: Callable[[], Found], is_whole: Callable[[Found], bool]) -> Found:
        """What ``look`` finds; it looks again where a segment was taken away while it did.

        is_whole    what was found lacks nothing, whichever segments went
        Ends: only deletions and cleans take segments. Errors as of ``look``.
        """
        while True:
            # Before the bounds: a deletion moves the log start before it takes a segment.
            segments = self.segments.values
            try:
                found = look()
            except FileNotFoundError as error:
                if not self._is_one_taken(segments):
                    self._refuse_when_gone()
                    self.losses.refuse_missing(error)
                    raise
            except CorruptBatch:  # bounds of a segment from before a swap and from after it
                if not self._is_one_taken(segments):
                    raise
            else:
                if not self._is_one_taken(segments) or is_whole(found):
                    return found
            if not self.segments.values:
                self._refuse_when_gone()

    def _is_one_taken(self, segments: tuple[LogSegment, ...]) -> bool:
        """Whether one of the segments of a moment ago is there no more; a roll only adds one."""
        now = self.segments.values
        return now is not segments and now[: len(segments)] != segments

    def _refuse_when_gone(self) -> None:
        """The whole log went while it was read: its topic was deleted, or its partition moved."""
        if self.refusal is not None:
            raise self.refusal()

    def check_bounds(self, offset: int) -> None:
        """OffsetBelowLogStart or OffsetAboveLogEnd where no reader can begin."""
        start, end = self.log_start_offset, self.log_end_offset
        if start <= offset <= end:
            return
        error = OffsetBelowLogStart if offset < start else OffsetAboveLogEnd
        raise error(
            f"Received request for offset {offset} for partition {self.topic_partition}, but we "
            f"only have log segments from offset {start} up to {end}.",
            log_start_offset=start,
            log_end_offset=end,
        )

    def _answer(
        self,
        data: memoryview,
        base_offset: int,
        next_offset: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> FetchDataInfo:
        """The answer with the watermarks of now."""
        return FetchDataInfo(
            data=data,
            base_offset=base_offset,
            next_offset=next_offset,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            last_stable_offset=self.last_stable_offset,
            aborted=aborted,
        )

    def offset_for_timestamp(
        self, timestamp_ms: int, isolation: Isolation, *, may_block: bool = True
    ) -> TimestampOffset | None:
        """List-offsets: -1 latest, -2 earliest, -3 largest timestamp, else first at or after."""
        if timestamp_ms < MAX_TIMESTAMP:
            raise InvalidRequest(
                f"{timestamp_ms} names no offset: -1 latest, -2 earliest, -3 newest"
            )
        limit = self.limit_of(isolation)
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, limit)
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self.log_start_offset)

        def look() -> TimestampOffset | None:
            if timestamp_ms == MAX_TIMESTAMP:
                return self._newest(may_block=may_block)
            return self._first_at_or_after(timestamp_ms, may_block=may_block)

        # Never whole: the index of a segment that was taken has no entries; a later one answers.
        found = self._undisturbed(look, lambda _: False)
        return found if found is not None and found.offset < limit else None

    def _newest(self, *, may_block: bool) -> TimestampOffset | None:
        """First record with the largest timestamp of the log."""
        segments = [segment for segment in self.segments if segment.size_bytes]
        if not segments:
            return None
        largest = [each.max_timestamp_so_far(may_block=may_block) for each in segments]
        # max takes the first one of equals, as Kafka does
        newest = max(range(len(segments)), key=lambda slot: largest[slot].timestamp_ms)
        if segments[newest].holds_messages:
            raise self.local.unsupported(segments[newest])
        return segment_reader.find_max_timestamp_record(
            segments[newest], largest[newest], may_block=may_block
        )

    def _first_at_or_after(self, timestamp_ms: int, *, may_block: bool) -> TimestampOffset | None:
        """First live record at or after timestamp_ms; LostOffsets when it may have been a lost one.

        Differs from Kafka, which looks into one segment only and finds nothing when the records
        there lie below the log start.
        """
        for segment in self.segments.values_between(self.log_start_offset, INT64_MAX):
            if segment.largest_timestamp_ms(may_block=may_block) >= timestamp_ms:
                if segment.holds_messages:
                    raise self.local.unsupported(segment)
                found = segment_reader.find_offset_by_timestamp(
                    segment, timestamp_ms, self.log_start_offset, may_block=may_block
                )
                if found is not None:
                    if self.losses.ranges:
                        self._require_no_loss_before(found.offset, may_block=may_block)
                    return found
        return None

    def _require_no_loss_before(self, offset: int, *, may_block: bool) -> None:
        """LostOffsets when a lost range lies right before the batch that holds offset.

        The records there may have been the first of that time. With a batch in between, which was
        too early, they were too.
        """
        for lost in self.losses.ranges:
            first_offset = lost.last_offset + 1
            if self.log_start_offset < first_offset <= offset:
                following = self.local.read(first_offset, 1, may_block=may_block)
                if following is None or following.next_offset > offset:
                    raise self.losses.error(lost)

    # ---- append

    def append(
        self,
        records: ValidatedRecords,
        *,
        leader_epoch: int | None = None,
        synced: bool,
        expected_offset: int | None = None,
    ) -> LogAppendInfo:
        """Append the set, all or nothing; offsets are given here (REPLICATION keeps its own).

        ``leader_epoch``: None is the newest known, 0 in a fresh log: an adopted log keeps its own.
        ``synced``: readable only after the flush that covers it. A retry of one of a producer's
        last five batches answers with the first one's offsets and writes nothing. Raises
        ExpectedOffsetMismatch, RecordSetTooLarge, OutOfOrderSequence, InvalidProducerEpoch,
        InvalidTxnState, TransactionCoordinatorFenced; OSError when the disk failed (see
        ``is_broken``); LogDirOffline once broken.
        """
        self._refuse_when_broken()
        if expected_offset is not None and expected_offset != self.log_end_offset:
            raise ExpectedOffsetMismatch(
                f"Expected offset {expected_offset}, but the log ends at {self.log_end_offset}",
                log_end_offset=self.log_end_offset,
            )
        if not records.batches:
            end = self.log_end_offset
            return append_plan.answer(records, end, end - 1, self.log_start_offset)
        if leader_epoch is None:
            latest = self.epochs.latest
            leader_epoch = 0 if latest is None else latest.epoch
        batches = append_plan.assign_offsets(records, self.log_end_offset, leader_epoch)
        first_offset, last_offset = batches[0].base_offset, batches[-1].last_offset
        for batch in batches:
            if batch.leader_epoch >= 0:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if records.size_bytes > self.config.max_segment_bytes:
            raise RecordSetTooLarge(
                f"Append size is {records.size_bytes} bytes, which exceeds the maximum configured "
                f"segment size of {self.config.max_segment_bytes}.",
                size_bytes=records.size_bytes,
                segment_bytes=self.config.max_segment_bytes,
            )
        if not self.room().holds(records.size_bytes, records.max_timestamp_ms, last_offset):
            self.roll(first_offset)
        changes = append_plan.check_producers(self.producers, records.origin, batches)
        if changes.duplicates:
            start = self.log_start_offset
            return append_plan.duplicate_answer(records, changes.duplicates, start)
        self.local.append(*append_plan.gather(batches))
        try:
            self._after_write(changes)
        except OSError as error:
            # The bytes are there and the log end has moved: their offsets are used up.
            self._broken = f"{type(error).__name__}: {error}"
            raise
        if synced:
            self._unsynced.append(first_offset)
        self._advance_high_watermark()
        return append_plan.answer(records, first_offset, last_offset, self.log_start_offset)

    def _refuse_when_broken(self) -> None:
        """No appends after a torn tail."""
        if self.is_broken:
            reason = self._broken or "a failed append could not be cut back"
            raise LogDirOffline(f"{self.topic_partition} takes no appends: {reason}")

    def plan_group(
        self, sets: Sequence[ValidatedRecords], synced: Sequence[bool], start: int = 0
    ) -> AppendGroup:
        """The longest group of plain sets from ``sets[start]`` on, for ``append_group``.

        It has no answers when the first set is to be appended alone.
        """
        leader_epoch = self._epoch_of_groups()
        if leader_epoch is None:
            return append_plan.AppendGroup(self.log_end_offset)
        return append_plan.plan_group(
            sets,
            synced,
            start,
            self.room(),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            synced_from=self.recovery_point + self.config.flush_messages,
        )

    def plan_joined(self, joined: JoinedBatches, *, synced: bool) -> AppendGroup | None:
        """One group of all of them, for ``append_group``; None: they are to go one by one."""
        leader_epoch = self._epoch_of_groups()
        if leader_epoch is None:
            return None
        return append_plan.plan_joined(
            joined,
            self.room(),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            synced=synced,
            synced_from=self.recovery_point + self.config.flush_messages,
        )

    def _epoch_of_groups(self) -> int | None:
        """None: the next set changes more than the end of a segment, and is to go alone."""
        latest = self.epochs.latest
        if self.is_broken or latest is None or latest.start_offset > self.log_end_offset:
            return None
        segment = self.local.active_segment
        if not segment.size_bytes or not segment.is_first_timestamp_known:
            return None
        return latest.epoch

    def append_group(self, group: AppendGroup) -> None:
        """Write plain sets that were planned for this log end; all or nothing, errors as above."""
        self._refuse_when_broken()
        assert group.first_offset == self.log_end_offset, "planned for another log end"
        self.local.append(group.buffers, group.batches)
        self.producers.end_offset = self.log_end_offset
        if group.first_synced is not None:  # the later ones wait for the same flush
            self._unsynced.append(group.first_synced)
        self._advance_high_watermark()

    def room(self) -> SegmentRoom:
        """What the next set may measure before the log rolls."""
        config, now_ms = self.local.config, self.environment.clock.wall_ms()
        return self.local.active_segment.room(
            config.max_segment_bytes, config.max_segment_ms, now_ms
        )

    def _after_write(self, changes: ProducerChanges) -> None:
        """Producer state and transaction index of bytes that are in the log."""
        for info in changes.infos.values():
            self.producers.update(info)
        for transaction in changes.completed:
            stable = self.producers.last_stable_offset_after(transaction)
            if transaction.is_aborted and not self.local.active_segment.transaction_index.exists:
                self.local.note_name_change()
            self.local.active_segment.update_transaction_index(transaction, stable)
            self.producers.complete(transaction)
        self.producers.end_offset = self.log_end_offset
        self._first_unstable_offset = self.producers.first_unstable_offset

    # ---- roll and flush

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Start a new active segment at max(expected_next_offset, log end) and snapshot producers.

        On OSError either nothing happened (LocalLog) or only the snapshot is missing, which makes
        a recovery scan more; appends go on in both cases.
        """
        self._refuse_when_broken()
        if expected_next_offset > self.log_end_offset:
            self.losses.end_gapless()
        is_all_visible = self.high_watermark >= self.log_end_offset
        segment = self.local.roll(expected_next_offset)
        self.producers.end_offset = segment.base_offset
        if is_all_visible:  # the log end may have moved; no record became visible by a roll
            self._advance_high_watermark()
        self.take_producer_snapshot()
        return segment

    def take_producer_snapshot(self) -> None:
        """Write a snapshot at the log end unless there is one; synced by the next flush."""
        if self.producers.take_snapshot(sync=False) is not None:
            self.local.note_name_change()

    def take_over_producers(self, producers: ProducerStateManager) -> None:
        """Know the producers of another copy of this log, which ends here; no snapshot yet."""
        self.producers.take_over(producers)
        self._first_unstable_offset = self.producers.first_unstable_offset

    def plan_flush(self, *, include_active: bool = True) -> FlushPlan | None:
        """What to sync so that all (or all but the active segment) is durable; None: nothing."""
        snapshots = self.producers.unsynced_paths
        local = self.local.plan_flush(
            include_active=include_active, has_other_files=bool(snapshots)
        )
        if local is None:
            return None
        return FlushPlan(local, snapshots, self.epochs, self.environment.filesystem)

    def mark_flushed(self, plan: FlushPlan) -> None:
        """The plan ran without an error: recovery point and high watermark move."""
        assert plan.is_done, "a plan that failed or did not run makes nothing durable"
        self.producers.note_synced(plan.snapshots)
        self.local.mark_flushed(plan.local)
        if plan.epoch_entries is not None:
            self.epochs.mark_written(plan.epoch_entries)
        while self._unsynced and self._unsynced[0] < plan.end_offset:
            self._unsynced.popleft()
        self._advance_high_watermark()

    # ---- watermarks

    def _advance_high_watermark(self) -> None:
        """Up to the log end or the first batch that waits for its flush."""
        self.update_high_watermark(self._unsynced[0] if self._unsynced else self.log_end_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Move it up to ``offset``, bounded by log start and log end, never back; returns it."""
        bounded = max(self.log_start_offset, min(offset, self.log_end_offset))
        if bounded > self.high_watermark:
            self.high_watermark = bounded
            self.producers.on_high_watermark(bounded)
            self._first_unstable_offset = self.producers.first_unstable_offset
        return self.high_watermark

    def increment_log_start_offset(self, new_offset: int, reason: str) -> bool:
        """Hide everything below new_offset; False when it is not above the log start.

        Raises OffsetAboveHighWatermark. Files go with the next retention pass.
        """
        if new_offset > self.high_watermark:
            raise OffsetAboveHighWatermark(
                f"Cannot increment the log start offset to {new_offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}",
                high_watermark=self.high_watermark,
            )
        if new_offset <= self.log_start_offset:
            return False
        self.log_start_offset = new_offset
        self.epochs.truncate_from_start(new_offset)
        self.producers.on_log_start(new_offset)
        self._first_unstable_offset = self.producers.first_unstable_offset
        self.losses.on_log_start(new_offset)
        _log.info(
            kafka_messages.start_moved(new_offset, reason), partition=str(self.topic_partition)
        )
        return True

    def delete_records(self, offset: int) -> int:
        """DeleteRecords: hide everything below offset (-1: the high watermark); low watermark.

        Raises PolicyViolation without ``delete`` in cleanup.policy, OffsetAboveHighWatermark. The
        caller makes the new log start durable before it answers.
        """
        if not self.config.has_delete_policy:
            raise PolicyViolation(
                f"Records of partition {self.topic_partition} can not be deleted due to the "
                "configured policy"
            )
        target = self.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0 or target > self.high_watermark:
            raise OffsetAboveHighWatermark(
                f"The specified offset {offset} is not between 0 and the high watermark "
                f"{self.high_watermark}",
                high_watermark=self.high_watermark,
            )
        self.increment_log_start_offset(target, "client delete records request")
        if target >= self.log_start_offset:
            self.disputed_start_offset = None  # now an operator has asked for it
        return self.log_start_offset

    def pass_accepted(self, lost: LostRange) -> None:
        """From here on the range is a gap like any other.

        Segments whose ``.log`` is gone leave the log; a loss before it moves the log start.
        """
        self.losses.publish()
        inside = self.segments.values_between(lost.first_offset, lost.last_offset + 1)
        active = self.segments.active
        gone = tuple(each for each in inside if each is not active and not each.log_file.exists())
        self.local.delete_segments(gone)
        self.delete_snapshots_of(gone)
        if lost.first_offset <= self.log_start_offset <= lost.last_offset:
            offset = min(lost.last_offset + 1, self.high_watermark)
            self.increment_log_start_offset(offset, "accepted loss")

    # ---- truncate, delete, close

    def delete_segments(self, segments: tuple[LogSegment, ...], reason: str) -> None:
        """Drop the oldest segments and their snapshots; the log start moves to the first left."""
        if not segments:
            return
        following = self.segments.higher(segments[-1].base_offset)
        assert following is not None, "the active segment is rolled before it goes"
        self.increment_log_start_offset(following.base_offset, reason)
        self.local.delete_segments(segments)
        self.delete_snapshots_of(segments)

    def delete_snapshots_of(self, segments: tuple[LogSegment, ...]) -> None:
        """Rename snapshots of segments that are gone, remove them after the delay."""
        marked = [self.producers.mark_snapshot_deleted(each.base_offset) for each in segments]
        paths = [path for path in marked if path is not None]
        if not paths:
            return
        filesystem = self.environment.filesystem

        def delete_files() -> None:
            for path in paths:
                try:
                    filesystem.unlink(path)
                except FileNotFoundError:
                    _log.info("snapshot_already_gone", path=path)

        self.environment.scheduler.schedule_once(
            DELETE_SNAPSHOT_TASK,
            self.environment.guarded(delete_files),
            self.config.file_delete_delay_ms,
        )

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches offset or above; False when there was none.

        The caller has made a recovery point at or below offset durable: until the next flush a
        power cut may leave any mixture of the cut and the uncut files, which recovery has to scan.
        """
        if offset >= self.log_end_offset:
            return False
        if self.segments.first.base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        gone = self.local.truncate_to(offset)
        # A batch is never cut in two: the log may end before the offset asked for.
        self.local.log_end_offset = min(offset, next_offset(self.local.active_segment))
        self.delete_snapshots_of(gone)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.losses.on_log_start(self.log_start_offset)
        self.producers.rebuild(
            self.segments,
            self.log_start_offset,
            self.log_end_offset,
            self.environment.clock.wall_ms(),
            is_clean=False,
        )
        self._after_truncation()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty at offset. The recovery point as of ``truncate_to``."""
        self.delete_snapshots_of(self.local.truncate_fully_and_start_at(offset))
        self.epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset
        self.losses.on_log_start(offset)
        self.local.recovery_point = offset  # nothing lies below it
        self._after_truncation()

    def _after_truncation(self) -> None:
        """Watermarks back inside the log."""
        self._unsynced = deque(base for base in self._unsynced if base < self.log_end_offset)
        self.high_watermark = max(
            self.log_start_offset, min(self.high_watermark, self.log_end_offset)
        )
        self._first_unstable_offset = self.producers.first_unstable_offset

    def update_config(self, config: LogConfig) -> None:
        """Take effect from the next append, roll or deletion on."""
        self.local.config = config

    def remove_expired_producers(self) -> int:
        """The periodic check; returns how many went."""
        return self.producers.remove_expired(self.environment.clock.wall_ms())

    def close(self) -> None:
        """Clean close, after a flush of everything: snapshot at the log end, trimmed indexes.

        Blocks for the syncs of the snapshot and its name: a clean start believes that a log without
        snapshots has no producers. ``sync_closed`` makes the trims durable.
        """
        if not self.is_broken:
            if self.producers.take_snapshot(sync=True) is not None:
                self.local.note_name_change()
            self.epochs.flush()
            self.local.sync_names()
        self.local.close()

    def sync_closed(self) -> None:
        """After ``close``, before the mark of a clean stop: the trims durable (KAFKA-20979)."""
        if not self.is_broken:
            for file in self.local.active_segment.files:
                file.datasync()

    def close_handles(self) -> None:
        """Drop descriptors without writing: the directory failed."""
        self._broken = self._broken or "closed"
        self.local.close_handles()

    def rename_dir(self, name: str) -> None:
        """Give the partition directory another name beside its siblings; the caller syncs."""
        self.local.rename_dir(f"{self.parent_dir}/{name}")

    def delete(self) -> None:
        """Remove every file and the directory; the log must not be used any more."""
        self._broken = "deleted"
        self.local.delete_all_segments()
        self.environment.filesystem.remove_tree(self.local.directory.path)
