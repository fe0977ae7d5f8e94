"""load_log: from a partition directory to a UnifiedLog, after a clean stop or a crash.

Owns the order of the steps, ``_load_once``, and nothing afterwards. One thread per log; no
other one sees the log before it is returned. A crash at any point is harmless: the clean-shutdown
mark was removed before, so the next load is an unclean one and does the same again. Source: Kafka's
LogLoader. Differs from Kafka: see ``corruption_policy`` (corruption='keep') and ``loader_files``;
segments with messages of format v0 and v1 stay as they are, closed and unread, until they are
converted (``format_conversion``): a log that ends with one goes on in a new segment.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import CorruptBatch
from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from kafkalog.format.disk.log_proofs import stays_gapless
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.offset_ranges import LostRange, not_accepted
from kafkalog.format.records.batch_scan import BatchColumn, has_messages
from kafkalog.format.topic_names import DirectoryState, parse_directory_name
from kafkalog.log.local_log import LocalLog, LogSegments
from kafkalog.log.lost_ranges import find_lost, log_left_over, log_lost, log_lost_end
from kafkalog.log.recovery import corruption_policy
from kafkalog.log.recovery.loader_files import LoaderFiles, has_sane_transactions
from kafkalog.log.recovery.prefix_repair import NO_ENDS, KnownEnds
from kafkalog.log.segment import segment_split
from kafkalog.log.segment.index_repair import has_whole_tail, next_offset
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_file import MovableDirectory
from kafkalog.log.segment.segment_recovery import SegmentOffsetOverflow
from kafkalog.log.state.leader_epoch_cache import (
    LeaderEpochCache,
    RecoveredEpochs,
    adopt_as_kafka,
    load_epochs,
    maybe_rebuild_epochs,
)
from kafkalog.log.state.producer_state_manager import DEFAULT_EXPIRATION_MS, ProducerStateManager
from kafkalog.log.state.start_offsets import LogStart, log_start
from kafkalog.log.unified_log import UnifiedLog
from kafkalog.log.values import MAX_RELATIVE_OFFSET, NO_PROOF, LogProof

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from kafkalog.errors import CorruptCheckpoint
    from kafkalog.format.records.batch_scan import BatchRows
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.lost_ranges import NoteLost
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.segment.segment_recovery import Judge, RecoveryResult
    from kafkalog.log.values import CompletedTransaction

_DISPUTED_REMEDY = (
    "Nothing is deleted from the log until the two agree. To keep what lies below the log start "
    "deleted, delete it again: kafkalog records delete --before-offset. To have it back, stop "
    "the daemon and run kafkalog doctor --repair."
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadHooks:
    """What others hear of a load, on its thread; ``check_stop`` and ``note_lost`` may end it.

    note_recovery             how many segments and bytes more (negative: fewer) wait for recovery
    note_cut                  so many bytes are cut off the end of a segment, or are set aside
    check_stop                before each chunk of an unclean load's scans; raises LoadStopped
    note_lost                 each hole: the file, its first and last offset (None: up to the end)
    note_start_contradiction  two files say different things of the log's start
    """

    note_recovery: Callable[[int, int], None] = lambda _segments, _bytes: None
    note_cut: Callable[[int], None] = lambda _bytes: None
    check_stop: Callable[[], None] = lambda: None
    note_lost: NoteLost = lambda _path, _first_offset, _last_offset: None
    note_start_contradiction: Callable[[], None] = lambda: None


NO_HOOKS = LoadHooks()


def load_log(  # noqa: PLR0913 - each is one fact about the load
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    corruption: Corruption = "kafka",
    topic_id: str | None = None,
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    may_have_gaps: bool = False,
    proof: LogProof = NO_PROOF,
    hooks: LoadHooks = NO_HOOKS,
) -> UnifiedLog:
    """Open one partition; the directory exists, an empty one becomes an empty log.

    ``clean``: the log directory was shut down cleanly; else everything from ``recovery_point`` on
    is scanned. Both offsets are the checkpoints', 0 without. ``may_have_gaps``: keep what lies
    after missing offsets also when ``config`` does not compact, as Kafka does. ``proof``: what is
    known of the log beyond the checkpoints. Raises CorruptBatch (a damaged message of format v0 or
    v1, an offset overflow, a damaged swap), CorruptCheckpoint (epochs), LoadStopped and OSError.
    The caller restores the high watermark.
    """
    loader = _Loader(
        MovableDirectory(directory),
        config,
        environment,
        corruption,
        producer_expiration_ms,
        may_have_gaps,
        proof,
        hooks,
        clean,
        recovery_point,
    )
    return loader.load(log_start_offset, topic_id)


@dataclass(eq=False)
class _Loader:
    """The state of one load."""

    _directory: MovableDirectory
    _config: LogConfig
    _environment: LogEnvironment
    _corruption: Corruption
    _expiration_ms: int
    _may_have_gaps: bool
    _proof: LogProof
    _hooks: LoadHooks
    _is_clean: bool
    _recovery_point: int

    def __post_init__(self) -> None:
        self._files = LoaderFiles(self._environment, self._directory, self._config)
        self._segments = LogSegments()
        self._epochs = LeaderEpochCache(self._environment.filesystem, self._directory)
        self._forgotten: set[int] = set()  # snapshots whose files are deleted at the end
        self._producers = self._new_producers(())
        self._start = 0
        self._log_start = LogStart(0)
        self._recovered: set[int] = set()  # bases of the segments that were recovered
        # No power cut took what lies below.
        self._durable_end = INT64_MAX if self._is_clean else self._recovery_point
        self._known = NO_ENDS  # where the log ended, as others than its batches have it
        self._last_end = 0  # what the log reached when it was last durable; 0: not known
        self._stops: set[int] = set()  # where a clean stop may have left it
        self._ends: dict[int, int] = {}  # base to end of segments that were looked at
        self._found_epochs = RecoveredEpochs()
        self._lost: dict[int | None, int] = {}  # holes not logged yet, see find_lost
        self._logged: list[LostRange] = []  # holes that were logged
        # The last segment while its index files may prove where the log ended, see _end_recovery.
        self._unfinished: list[tuple[LogSegment, RecoveryResult, bool]] = []

    def load(self, checkpointed_start: int, topic_id: str | None) -> UnifiedLog:
        """All steps; again from the listing on when a recovered segment had to be split."""
        while True:
            self._log_start = LogStart(checkpointed_start)
            try:
                return self._load_once(topic_id)
            except SegmentOffsetOverflow as overflow:
                self._split(overflow)
            except Exception:
                self._segments.close_handles()  # the cache of indexes would keep their descriptors
                raise

    def _load_once(self, topic_id: str | None) -> UnifiedLog:
        """All steps; SegmentOffsetOverflow leaves this object with stale segments."""
        self._recovered.clear()
        self._logged.clear()
        self._unfinished.clear()
        self._forgotten.clear()
        self._ends.clear()
        self._found_epochs = RecoveredEpochs()
        self._files.reconcile()
        snapshots = self._files.offsets_of(SNAPSHOT_SUFFIX)
        self._producers = self._new_producers(snapshots)
        # Not known to be durable: a name may have come back whose records another life lost.
        self._producers.delete_snapshots(each for each in snapshots if each >= self._durable_end)
        epoch_damage = load_epochs(self._epochs, self._corruption)
        self._judge_start()
        self._note_known_ends(snapshots)
        self._load_segments()
        identity = parse_directory_name(self._directory.path.rpartition("/")[2])
        is_deleted = identity.state is DirectoryState.DELETE
        if not is_deleted:
            self._recover_records(epoch_damage)
        self._ensure_first(0 if is_deleted else self._start)
        log_end = self._find_end()
        lost = () if is_deleted else self._end_log(log_end)
        self._end_recovery()
        self._end_messages(log_end)
        self._segments.active.become_active()
        local = LocalLog(
            self._environment,
            self._directory,
            self._config,
            self._segments,
            recovery_point=min(self._durable_end, log_end),
            log_end_offset=log_end,
            has_unsynced_names=not self._is_clean,
        )
        local.aborted_in_lost = self._files.aborted_in_lost()
        if not is_deleted:
            self._restore_state(local, lost)
        log = UnifiedLog(
            identity.topic_partition,
            self._environment,
            local,
            self._epochs,
            self._producers,
            log_start_offset=self._start,
            topic_id=topic_id,
            proof=replace(self._proof, end_offset=None),  # from here on it moves
            disputed_start_offset=None if is_deleted else self._log_start_conflict(),
        )
        for each in lost:
            log.losses.note(*each)
        return log

    def _recover_records(self, epoch_damage: CorruptCheckpoint | None) -> None:
        """Records that may not be durable, their epochs, and the log start."""
        if self._is_clean:
            self._recover_torn_tail()
        else:
            self._recover_from_point()
        maybe_rebuild_epochs(self._epochs, self._segments, epoch_damage, self._note_epochs)
        if self._corruption == "keep":  # rot in the batches is written back
            rotten = self._found_epochs.correct(self._epochs, is_gapless=self._proof.is_gapless)
            corruption_policy.repair_epochs(self._environment.filesystem, self._segments, rotten)
        self._found_epochs.adopt(self._epochs)
        self._drop_when_below_start()

    def _judge_start(self) -> None:
        """Whether the log is still gapless, and which of two log starts counts.

        As far as names and epochs show it.
        """
        is_gapless = stays_gapless(
            self._proof.is_gapless,
            was_cleaned=self._may_have_gaps,
            epochs=[entry.epoch for entry in self._epochs.entries],
        )
        self._proof = replace(self._proof, is_gapless=is_gapless)
        first_epoch = self._epochs.entries[0] if self._epochs.entries else None
        self._log_start = log_start(
            self._log_start.offset,
            self._proof.log_start_offset,
            self._files.offsets_of(LOG_SUFFIX),
            None if first_epoch is None else first_epoch.start_offset,
            clean=self._is_clean,
        )
        self._start = self._log_start.offset

    def _log_start_conflict(self) -> int | None:
        """The line for a contradiction; the lower log start while it is disputed, or None."""
        start = self._log_start
        if start.other is None:
            return None
        _log.error(
            "log_starts_contradict",
            partition=self._directory.path.rpartition("/")[2],
            log_start_offset=start.offset,
            other=start.other,
            remedy=_DISPUTED_REMEDY if start.is_disputed else "None: the line is written again.",
        )
        self._hooks.note_start_contradiction()
        return start.other if start.is_disputed else None

    def _note_known_ends(self, snapshots: Sequence[int]) -> None:
        """Where the log ended, from all that says so beside its batches.

        Kafka may have run since our last clean stop: what the recovery point and a snapshot agree
        in is newer then than the end that we noted.
        """
        recovery_point = self._recovery_point
        noted, newest = self._proof.end_offset, max(snapshots, default=0)
        last_end = recovery_point
        if self._is_clean and noted is not None and newest != recovery_point:
            last_end = noted
        elif self._is_clean and not recovery_point:
            last_end = newest
        self._last_end = last_end
        self._stops = {recovery_point, 0 if noted is None else noted} - {0}
        if noted is None and not self._stops and newest:
            self._stops = {newest}
        bases = self._files.offsets_of(LOG_SUFFIX)  # of those only one after the last batch counts
        ends = {*snapshots, *bases, recovery_point, 0 if noted is None else noted} - {0}
        self._known = KnownEnds(frozenset(ends), is_gapless=self._proof.is_gapless)

    def _end_log(self, log_end: int) -> tuple[LostRange, ...]:
        """Let the log end where it ended; what it lost.

        The offsets of what rotted or went there are not given to other records: a new segment
        begins after them, whose name says so to every later start and to Kafka. The loss is made
        known to later starts before: with that segment it looks like a legal gap.
        """
        active = self._segments.active
        end = self._end_of(active)
        is_kept = self._corruption == "keep"
        durable_end = self._last_end if is_kept else self._recovery_point
        log_lost_end(active, end, durable_end, self._hooks.note_lost)
        if is_kept and end < log_end:
            self._logged.append(LostRange(max(end, self._start), log_end - 1))
        ends_elsewhere = log_end != next_offset(active)
        lost = self._reconcile_lost(log_end)
        if is_kept and ends_elsewhere:
            _log.warning("segment_begun_behind_rot", path=active.log_file.path, base=log_end)
            self._segments.add(
                LogSegment.create(self._environment, self._directory, log_end, self._config)
            )
            self._environment.filesystem.sync_dir(self._directory.path)
        return lost

    def _end_messages(self, log_end: int) -> None:
        """No v2 batch is appended after messages of format v0 and v1: readers would not get it."""
        if self._segments.active.holds_messages:
            self._segments.add(
                LogSegment.create(self._environment, self._directory, log_end, self._config)
            )
            self._environment.filesystem.sync_dir(self._directory.path)
        old = [each.base_offset for each in self._segments if each.holds_messages]
        if old:
            _log.warning(
                "segments_in_old_format",
                directory=self._directory.path,
                count=len(old),
                first_base_offset=old[0],
                last_base_offset=old[-1],
                remedy="Stop the daemon and run: kafkalog segments convert "
                f"{self._directory.path} --execute",
            )

    def _end_of(self, segment: LogSegment) -> int:
        """After its last batch; what recovery found is believed before the headers that are there.

        A batch that rotted and stays has offsets of its neighbours, and its header may say others.
        """
        base = segment.base_offset
        if base not in self._ends:
            self._ends[base] = next_offset(segment)
        return self._ends[base]

    def _find_end(self) -> int:
        """Where the log ends: after its last batch, and with 'keep' never below what was durable.

        An end that no append to the last segment could have reached is not believed.
        """
        active = self._segments.active
        end = self._end_of(active)
        reach = active.base_offset + MAX_RELATIVE_OFFSET
        is_kept = self._corruption == "keep"
        return self._last_end if is_kept and end < self._last_end <= reach else end

    def _ensure_first(self, base_offset: int) -> None:
        """A first segment under a durable name; an empty log gets one at ``base_offset``.

        Else a power cut could keep a later segment alone: the log would start there. The process
        that made the name may have been killed before it synced it; a flush up to the
        recovery point did.
        """
        if not len(self._segments):
            if base_offset in self._files.orphans:
                self._files.remove_segment(base_offset)
            self._segments.add(
                LogSegment.create(self._environment, self._directory, base_offset, self._config)
            )
        elif self._segments.first.base_offset < self._durable_end:
            return
        self._environment.filesystem.sync_dir(self._directory.path)

    @property
    def _has_gaps(self) -> bool:
        """Whether missing offsets may be what compaction took: not of a log without gaps so far."""
        return not self._proof.is_gapless and (self._config.is_compacted or self._may_have_gaps)

    def _new_producers(
        self, snapshot_offsets: Iterable[int], *, is_last: bool = False
    ) -> ProducerStateManager:
        """A manager that knows nothing but which snapshots there are; the last deletes files."""
        return ProducerStateManager(
            self._environment.filesystem,
            self._directory,
            self._expiration_ms,
            self._environment.check_producer,
            None if is_last else self._forgotten,
            sorted(snapshot_offsets),
        )

    def _successor_of(
        self, producers: ProducerStateManager, *, is_last: bool = False
    ) -> ProducerStateManager:
        """A manager that starts from what is on disk."""
        successor = self._new_producers(producers.snapshot_offsets, is_last=is_last)
        successor.take_over_unsynced(producers)
        return successor

    def _load_segments(self) -> None:
        """Step 5: one object a segment; those that cannot be served as they are get recovered.

        They may lie below the recovery point, where no flush and no later start looks again, so
        what was rebuilt is synced here; a rebuilding that a crash cut off shows as a time index
        without entries.
        """
        bases, is_old = self._files.offsets_of(LOG_SUFFIX), False
        for base in bases:
            segment = self._files.segment(base)
            self._segments.add(segment)
            # Old formats come before v2: where a segment begins with that, later ones are not read.
            if base in (bases[0], bases[-1]) or is_old:
                corruption_policy.note_messages(
                    self._environment.filesystem, segment, self._corruption, self._files.end_of
                )
            is_old = segment.holds_messages
            is_indexed = self._files.has_file(base, OFFSET_INDEX_SUFFIX)
            if not self._is_clean and segment.size_bytes and base != bases[-1]:
                is_indexed = is_indexed and self._files.size_of(base, TIME_INDEX_SUFFIX) > 0
            if not is_indexed or not has_sane_transactions(segment):
                _log.warning("segment_index_rebuilt", path=segment.log_file.path)
                self._recover_and_sync(segment)
            else:
                self._files.complete_indexes(
                    segment, is_trimmed=self._is_clean or base == bases[-1]
                )
        epochs = self._epochs.entries
        # Holes that names prove, or that the log is gapless.
        self._lost = find_lost(
            self._segments.values,
            self._files.orphans,
            self._files.offsets_of(SNAPSHOT_SUFFIX),
            self._proof,
            first_epoch_start=epochs[0].start_offset if epochs else None,
            start_offset=self._start,
            durable_end=self._durable_end,
            may_have_gaps=self._has_gaps,
        )

    def _reconcile_lost(self, log_end_offset: int) -> tuple[LostRange, ...]:
        """Tell what is lost and was not accepted, and keep it known; those ranges.

        None with 'kafka': what a missing segment leaves is removed and proves nothing.
        """
        holes = list(self._logged)
        for last, first in self._lost.items():
            last_offset = log_end_offset - 1 if last is None else last
            if first <= last_offset:
                holes.append(LostRange(max(first, self._start), last_offset))
        lost = not_accepted(holes, self._proof.accepted_losses)
        log_left_over(self._directory.path, self._lost, lost, self._hooks.note_lost)
        kept = lost if self._corruption == "keep" else ()
        self._files.reconcile_orphans(kept, self._proof.accepted_losses)
        for first, _ in kept:
            # Of an empty segment the index alone stays: as of one whose log is gone, it is a proof.
            segment = self._segments.get(first)
            if segment is not None and not segment.size_bytes:
                self._segments.remove((segment,))
                segment.close_handles()
                segment.log_file.unlink()
                segment.log_file.sync_name()
        return kept

    def _recover_and_sync(self, segment: LogSegment) -> None:
        """Recover a segment that no flush may look at again."""
        self._recover(segment, is_durable=True)
        self._recovered.add(segment.base_offset)

    def _recover_torn_tail(self) -> None:
        """Recover the last segment of a clean log that ends with no whole batch, or elsewhere.

        It was changed after the clean stop. Differs from Kafka, which appends after a torn
        batch, where no reader gets to, and does not start at all with other bytes. With 'keep' a
        log is looked at as well that ends neither where we stopped nor at the recovery point: the
        last base offset may have rotted. Where its batches end counts when one of the two agrees.
        """
        if not len(self._segments):
            return
        active, tail = self._segments.active, list["BatchRows"]()
        if not has_whole_tail(active, tail=tail):
            _log.error("clean_log_is_torn", path=active.log_file.path)
            self._recover_and_sync(active)
            return
        if any(map(has_messages, tail)):
            active.holds_messages = True
        end = self._ends[active.base_offset] = next_offset(active)
        if end in self._stops or not self._stops:
            self._last_end = end
        elif self._corruption == "keep" and active.size_bytes:
            self._recover_and_sync(active)
            return
        if self._corruption == "keep" and tail:
            self._correct_tail(tail)

    def _correct_tail(self, tail: Sequence[BatchRows]) -> None:
        """Write back the leader epoch of the last batch; after a clean stop the checkpoint has all.

        That another one of these rotted shows only if the last one's is wrong as well.
        """
        last = tail[-1].table[-1]
        known = self._epochs.epoch_for(int(last[BatchColumn.BASE_OFFSET]))
        if int(last[BatchColumn.LEADER_EPOCH]) == known or known < 0:
            return
        found = RecoveredEpochs()
        for rows in tail:
            found.note(rows)
        rotten = found.correct(self._epochs, is_gapless=self._proof.is_gapless, is_complete=True)
        corruption_policy.repair_epochs(self._environment.filesystem, self._segments, rotten)

    def _recover_from_point(self) -> None:
        """Step 7: scan what may not be durable; after what a power cut took nothing is served.

        A segment that ends below the next one's base has lost its tail as well, be the rest of it
        sound: a power cut may keep the name of a file and drop its data. Only compaction leaves
        such gaps on purpose.
        """
        is_fresh = True  # nothing below the segment has changed since its recovery
        segments = self._segments.values_between(self._recovery_point, INT64_MAX)
        with closing(self._counted(segments)) as counted:
            for segment in counted:
                is_fresh = is_fresh and segment.base_offset in self._recovered
                is_cut = not is_fresh and self._recover(segment)
                later = self._segments.higher_values(segment.base_offset)
                if later and self._is_end_of_log(segment, later, is_cut=is_cut):
                    return

    def _is_end_of_log(
        self, segment: LogSegment, later: Sequence[LogSegment], *, is_cut: bool
    ) -> bool:
        """Whether ``later`` cannot be served, because offsets before them are lost: they go.

        With 'keep' they stay when nothing is missing before them, or when that was durable once:
        no power cut took it, so it says nothing of what lies after. Else they may be what a power
        cut left of unsynced data, without its beginning; they are set aside, never deleted.
        """
        end, next_base = self._end_of(segment), later[0].base_offset
        if not is_cut and (self._has_gaps or end >= next_base):
            return False
        if not is_cut:
            _log.warning("segment_tail_lost", path=segment.log_file.path)
        if self._corruption == "kafka":
            self._drop(later, end)
            return True
        if end >= next_base or next_base <= self._start:
            return False  # nothing live is missing
        if not not_accepted([(end, next_base - 1)], self._proof.accepted_losses):
            return False
        is_durable = end < self._recovery_point
        log, kept = segment.log_file.path, "kept" if is_durable else "set aside"
        log_lost(log, segment.size_bytes, end, next_base - 1, kept, self._hooks.note_lost)
        self._lost.pop(next_base - 1, None)
        if is_durable:
            self._logged.append(LostRange(max(end, self._start), next_base - 1))
            return False
        self._drop(later, end)
        return True

    def _drop(self, segments: Sequence[LogSegment], end_offset: int) -> None:
        """Out of the set and out of service; the log ends at ``end_offset``."""
        self._segments.remove(segments)
        self._hooks.note_cut(sum(segment.size_bytes for segment in segments))
        corruption_policy.drop(
            self._environment, self._config, segments, self._corruption, end_offset
        )

    def _counted(self, segments: Sequence[LogSegment]) -> Generator[LogSegment, None, None]:
        """Each in turn, reported to ``note_recovery``; those not reached any more count as done."""
        note, waiting = self._hooks.note_recovery, [s.size_bytes for s in reversed(segments)]
        note(len(waiting), sum(waiting))
        try:
            for segment in segments:
                yield segment
                note(-1, -waiting.pop())
        finally:
            note(-len(waiting), -sum(waiting))

    def _recover(self, segment: LogSegment, *, is_durable: bool = False) -> bool:
        """Check one segment and rebuild what belongs to it; True when bytes were cut off."""
        # As in Kafka each segment starts from the snapshot before it: with the producers that have
        # not expired, and without transactions that ended before the crash.
        self._producers = self._successor_of(self._producers)
        self._producers.rebuild(
            self._segments,
            self._start,
            segment.base_offset,
            self._environment.clock.wall_ms(),
            is_clean=False,
            before_chunk=self._check_stop,
        )

        def on_completed(completed: CompletedTransaction) -> None:
            stable = self._producers.last_stable_offset_after(completed)
            segment.update_transaction_index(completed, stable)

        def on_batches(rows: BatchRows, data: memoryview) -> None:
            self._producers.apply_rows(rows.table, data, on_completed)
            self._note_epochs(rows)

        judge, is_proof = self._judge_of(segment)
        try:
            result = segment.recover(
                on_batches, judge, is_durable=is_durable, keeps_indexes=is_proof
            )
        except SegmentOffsetOverflow:
            corruption_policy.judge_before_split(
                self._environment.filesystem, segment, self._corruption
            )
            raise
        if is_proof:
            self._unfinished.append((segment, result, is_durable))
        if result.truncated_bytes:
            self._hooks.note_cut(result.truncated_bytes)
            _log.warning(
                "segment_cut",
                path=segment.log_file.path,
                bytes=result.truncated_bytes,
                position=result.valid_bytes,
                first_offset=result.next_offset,
                reason="none" if result.bad_batch is None else result.bad_batch.value,
            )
        self._ends[segment.base_offset] = result.next_offset
        # So that the next segment does not scan this one again.
        self._producers.end_offset = max(result.next_offset, segment.base_offset)
        self._producers.take_snapshot(sync=False)
        return result.truncated_bytes > 0

    def _judge_of(self, segment: LogSegment) -> tuple[Judge, bool]:
        """Who decides on its bad batches; whether its index may prove where the log ended."""
        is_kept, base = self._corruption == "keep", segment.base_offset
        end = self._files.end_of(base) if is_kept else INT64_MAX
        is_proof = is_kept and end == INT64_MAX
        judge = corruption_policy.judge(
            self._environment.filesystem,
            segment,
            self._corruption,
            end,
            durable_end=self._durable_end,
            known=self._known,
            last_end=self._last_end if is_proof else 0,
            next_base=min(self._files.bases_after(base), default=0) if is_proof else 0,
        )
        return judge, is_proof

    def _end_recovery(self) -> None:
        """The end of the log is durable: from here on nothing has to prove it any more.

        Before, a load that is cut short must leave the next one what it decided by: the offset
        index of the last segment and the names of the producer snapshots.
        """
        for segment, result, is_durable in self._unfinished:
            if self._segments.get(segment.base_offset) is segment:
                segment.end_recovery(result, is_durable=is_durable)

    def _split(self, overflow: SegmentOffsetOverflow) -> None:
        """Split a segment and forget what was loaded; its bad tail, if any, is cut before.

        CorruptBatch when a single batch spans the whole range of offsets.
        """
        segment, filesystem = self._segments.get(overflow.base_offset), self._environment.filesystem
        assert segment is not None, "only segments of the log are recovered"
        pieces = segment_split.plan_split(segment)
        if [piece.base_offset for piece in pieces] in ([], [segment.base_offset]):
            raise CorruptBatch(str(overflow), file=segment.log_file.path, position=0)
        _log.warning(
            "segment_split",
            path=segment.log_file.path,
            bases=[piece.base_offset for piece in pieces],
        )
        if pieces[-1].end < segment.size_bytes:
            self._hooks.note_cut(segment.size_bytes - pieces[-1].end)
            log = segment.log_file.pin_for_write()
            log.truncate(pieces[-1].end)
            log.datasync()
            later = self._segments.higher_values(segment.base_offset)
            corruption_policy.rename(filesystem, later, self._corruption, segment.base_offset)
        segment_split.write_pieces(filesystem, self._directory.path, segment, pieces)
        self._segments.close_handles()
        orphans = self._files.orphans
        self._files = LoaderFiles(self._environment, self._directory, self._config)
        self._files.reconcile()
        self._files.orphans |= orphans
        if pieces[0].base_offset != segment.base_offset:
            self._files.remove_segment(segment.base_offset)
        self._segments = LogSegments()
        self._epochs = LeaderEpochCache(filesystem, self._directory)

    def _check_stop(self) -> None:
        """LoadStopped once the load is to end: what it leaves is what a crash leaves.

        Not after a clean stop: only small repairs are due then, and the marker of the directory
        would cover one that was broken off.
        """
        if not self._is_clean:
            self._hooks.check_stop()

    def _note_epochs(self, rows: BatchRows) -> None:
        """Epochs of a chunk of batches: the checkpoint may be older than they are."""
        self._check_stop()
        if self._corruption == "keep":
            self._found_epochs.note(rows)
            return
        adopt_as_kafka(self._epochs, rows)

    def _drop_when_below_start(self) -> None:
        """Step 8: a log that ends below its start has lost what the start promised to hold."""
        if not len(self._segments):
            return
        log_end = self._find_end()
        self._log_start = self._log_start.within(log_end)
        self._start = self._log_start.offset
        if log_end >= self._start:
            return
        _log.warning(
            "log_below_start_dropped",
            directory=self._directory.path,
            log_end_offset=log_end,
            log_start_offset=self._start,
        )
        # With 'keep' they are only set aside: the start is a number in a text file.
        self._drop(self._segments.values, log_end)
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(self._start)

    def _restore_state(self, local: LocalLog, lost: Sequence[LostRange]) -> None:
        """Step 11: epochs, log start, snapshots, producers."""
        log_end = local.log_end_offset
        self._epochs.truncate_from_end(log_end)
        if not self._log_start.is_disputed:  # it would be the mark that proves the start
            self._epochs.truncate_from_start(self._start)
        first_base = self._segments.first.base_offset
        # A loss before the log is no deletion: the log still starts with it.
        begins = [each.first_offset for each in lost if each.last_offset == first_base - 1]
        self._start = max(self._start, min([first_base, *begins]))
        self._epochs.flush()
        bases = {segment.base_offset for segment in self._segments}
        self._producers = self._successor_of(self._producers, is_last=True)
        self._producers.delete_snapshots(
            sorted(self._forgotten.difference(self._producers.snapshot_offsets))
        )
        self._producers.remove_stray_snapshots(bases)
        self._producers.rebuild(
            self._segments,
            self._start,
            log_end,
            self._environment.clock.wall_ms(),
            is_clean=self._is_clean,
            before_chunk=self._check_stop,
        )
        if not self._is_clean:
            for segment in self._segments.values_between(local.recovery_point, INT64_MAX):
                segment.mark_unflushed()
