"""ProducerStateManager: all producers of one log, open transactions, and their snapshots.

Owns the entries, the transactions that are open or not yet below the high watermark, and the
``<offset>.snapshot`` files of a partition directory. Writer thread (recovery: the loader). A
snapshot is written without a sync (the flusher syncs it) except at close; a torn one fails its CRC
at load, is deleted and the next older one is taken.

``rebuild`` and ``apply_rows`` make the state from the batches of the log: after a load, a
truncation, and during recovery. Batches come as rows of a chunk. Of producers without transactions
only the last five rows of each matter, so a chunk costs a few numpy calls and at most five Python
steps a producer; rows of transactional producers are applied one by one. Source: Kafka's
ProducerStateManager, UnifiedLog.rebuildProducerState and loadProducersFromRecords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import structlog

from kafkalog.format.disk.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file_name
from kafkalog.format.disk.producer_snapshot import decode_snapshot, encode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_scan import BatchColumn
from kafkalog.format.records.control_record import read_batch_marker
from kafkalog.format.records.record_batch import (
    NO_SEQUENCE,
    add_to_sequence,
    is_control,
    is_transactional,
)
from kafkalog.log.segment.index_repair import verified_floor
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.state.producer_state import (
    BATCHES_TO_RETAIN,
    LastRecord,
    ProducerAppendInfo,
    ProducerBatch,
    ProducerStateEntry,
)
from kafkalog.log.values import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import numpy.typing as npt

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.local_log import LogSegments
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.state.producer_state import ProducerCheck
    from kafkalog.log.values import CompletedTransaction

    Rows = npt.NDArray[np.int64]

_log = structlog.get_logger(__name__)

DEFAULT_EXPIRATION_MS = 86_400_000
SNAPSHOTS_AT_LAST_SEGMENTS = 2
_TRANSACTION_BITS = 0x30  # transactional, control


@dataclass(eq=False, slots=True)
class ProducerStateManager:
    """See the module."""

    # constant after construction
    _filesystem: Filesystem
    _directory: MovableDirectory
    _expiration_ms: int
    # As LogEnvironment has it; the entry that it gets knows the batches before it in the append.
    check_producer: ProducerCheck
    # Deleted snapshots are put here and their files stay, because a name may prove where the log
    # ended; None: they are deleted.
    _forgotten: set[int] | None
    # owned by the writer thread
    _snapshots: list[int]  # offsets of the snapshot files, rising
    _ongoing: dict[int, int] = field(default_factory=dict)  # first offset -> producer id
    _unsynced: list[int] = field(default_factory=list)  # snapshots that no flush covered yet
    _unreplicated: dict[int, int] = field(default_factory=dict)  # first offset -> the marker's
    end_offset: int = 0  # everything below is reflected in entries
    last_snapshot_offset: int = 0  # as in Kafka: an empty log at 0 gets no snapshot
    # published: written by the writer thread; for others single operations of the dictionary,
    # whose entries are replaced, never changed
    entries: dict[int, ProducerStateEntry] = field(default_factory=dict)

    # ---- appends

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begin the changes of one append to one producer."""
        return ProducerAppendInfo(producer_id, self.entries.get(producer_id), origin)

    def update(self, info: ProducerAppendInfo) -> None:
        """The bytes are written: take the changes over."""
        entry = info.updated
        self.entries[entry.producer_id] = entry
        for first_offset in info.started_transactions:
            self._ongoing[first_offset] = entry.producer_id

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once ``completed`` has ended (its transaction index entry)."""
        others = (
            first
            for first, producer_id in self._ongoing.items()
            if producer_id != completed.producer_id
        )
        return min(others, default=completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Close an open transaction; it stays unstable until the high watermark passes it."""
        assert completed.first_offset in self._ongoing, "only an open transaction can end"
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Ended transactions whose marker lies below are stable."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    def on_log_start(self, log_start_offset: int) -> None:
        """Ended transactions below the log start need no bookkeeping; producers stay."""
        self._unreplicated = {
            first: last for first, last in self._unreplicated.items() if last >= log_start_offset
        }

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open or not replicated; None without any."""
        firsts = (*self._ongoing, *self._unreplicated)
        return min(firsts) if firsts else None

    def open_transactions(self) -> dict[int, int]:
        """First offset -> producer id, of those that no marker has ended yet; any thread."""
        return self._ongoing.copy()

    def last_records(self) -> dict[int, LastRecord]:
        """By producer id: what the cleaner has to keep so that a reload finds the same state."""
        return {
            producer_id: LastRecord(
                entry.last_offset if entry.last_offset >= 0 else None, entry.producer_epoch
            )
            for producer_id, entry in self.entries.items()
        }

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were silent too long; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.is_expired(now_ms, self._expiration_ms)
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    # ---- snapshots

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        """Offsets of the snapshot files, rising."""
        return tuple(self._snapshots)

    def snapshot_path(self, offset: int) -> str:
        """File of one snapshot."""
        return f"{self._directory.path}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"

    def take_snapshot(self, *, sync: bool) -> int | None:
        """Write ``<end offset>.snapshot`` unless there is one; its offset, or None.

        On OSError there is none, and the next call tries again.
        """
        offset = self.end_offset
        if offset <= self.last_snapshot_offset:
            return None
        data = encode_snapshot([entry.to_snapshot() for entry in self.entries.values()])
        try:
            file = self._filesystem.open_write(self.snapshot_path(offset))
            file.truncate(0)
            file.pwrite(data, 0)
            if sync:
                file.sync()
        except OSError as error:
            self._withdraw_snapshot(offset, error)
            raise
        if not sync:
            self._unsynced.append(offset)
        if offset not in self._snapshots:
            self._snapshots.append(offset)
            self._snapshots.sort()
        self.last_snapshot_offset = offset
        return offset

    def _withdraw_snapshot(self, offset: int, cause: OSError) -> None:
        """Remove a snapshot that could not be written; a torn one that stays fails its CRC."""
        try:
            self.delete_snapshots((offset,))
        except OSError as error:
            cause.add_note(f"removing {self.snapshot_path(offset)} failed: {error}")

    @property
    def unsynced_paths(self) -> tuple[str, ...]:
        """Snapshot files that a flush has to sync."""
        return tuple(map(self.snapshot_path, self._unsynced))

    def take_over_unsynced(self, predecessor: ProducerStateManager) -> None:
        """The snapshots of a manager of the same directory that were not synced are this one's."""
        self._unsynced = [*predecessor._unsynced]

    def take_over(self, current: ProducerStateManager) -> None:
        """Know all that the manager of another copy of the log knows, at the same end offset.

        A snapshot that lies there already was written without it: the next one replaces it.
        """
        assert self.end_offset == current.end_offset, "the copy has not caught up"
        self.entries = dict(current.entries)
        self._ongoing = dict(current._ongoing)
        self._unreplicated = dict(current._unreplicated)
        self.last_snapshot_offset = min(self.last_snapshot_offset, self.end_offset - 1)

    def note_synced(self, paths: Collection[str]) -> None:
        """A flush made these files durable."""
        self._unsynced = [each for each in self._unsynced if self.snapshot_path(each) not in paths]

    def delete_snapshots(self, offsets: Iterable[int]) -> None:
        """Remove these files at once; missing ones are fine."""
        for offset in tuple(offsets):
            if offset in self._snapshots:
                self._snapshots.remove(offset)
            if self._forgotten is not None:
                self._forgotten.add(offset)
                continue
            try:
                self._filesystem.unlink(self.snapshot_path(offset))
            except FileNotFoundError:
                _log.info("snapshot_already_gone", path=self.snapshot_path(offset))

    def mark_snapshot_deleted(self, offset: int) -> str | None:
        """Rename a snapshot to ``.deleted`` (its segment went); its new path, None without one."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = self.snapshot_path(offset)
        try:
            self._filesystem.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def remove_stray_snapshots(self, segment_bases: Collection[int]) -> None:
        """Delete snapshots that belong to no segment, but the newest if it lies after them all."""
        strays = [offset for offset in self._snapshots if offset not in segment_bases]
        last_base = max(segment_bases, default=-1)
        if strays and strays[-1] == self._snapshots[-1] and strays[-1] > last_base:
            strays.pop()
        self.delete_snapshots(strays)

    # ---- load and truncate

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go back to the newest usable snapshot in (log start, log end]; scan from end_offset on.

        Snapshots outside that range are deleted. Nothing happens when the state is already that of
        log_end_offset.
        """
        self.delete_snapshots(
            offset
            for offset in tuple(self._snapshots)
            if offset > log_end_offset or offset <= log_start_offset
        )
        if log_end_offset == self.end_offset:
            return
        self._clear()
        while self._snapshots:
            offset = self._snapshots[-1]
            if self._load(offset, now_ms):
                return
            self.delete_snapshots((offset,))
        self.end_offset = log_start_offset
        self.last_snapshot_offset = log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget all producers and snapshots; the log is empty at offset."""
        self._clear()
        self.delete_snapshots(tuple(self._snapshots))
        self.end_offset = offset
        self.last_snapshot_offset = 0

    def _clear(self) -> None:
        """No producers, no transactions."""
        self.entries = {}
        self._ongoing = {}
        self._unreplicated = {}
        self.last_snapshot_offset = 0  # as in Kafka: an empty log at 0 gets no snapshot

    def _load(self, offset: int, now_ms: int) -> bool:
        """Take over one snapshot; False when it is damaged or gone."""
        path = self.snapshot_path(offset)
        try:
            rows = decode_snapshot(self._filesystem.read_file(path))
        except (FormatError, FileNotFoundError) as error:
            _log.warning("snapshot_damaged", path=path, reason=str(error))
            return False
        for row in rows:
            entry = ProducerStateEntry.from_snapshot(row)
            if entry.is_expired(now_ms, self._expiration_ms):
                continue
            self.entries[entry.producer_id] = entry
            if entry.current_txn_first_offset is not None:
                self._ongoing[entry.current_txn_first_offset] = entry.producer_id
        self.end_offset = offset
        self.last_snapshot_offset = offset
        return True

    def rebuild(
        self,
        segments: LogSegments,
        log_start_offset: int,
        last_offset: int,
        now_ms: int,
        *,
        is_clean: bool,
        before_chunk: Callable[[], None] | None = None,
    ) -> None:
        """Make the state that of ``last_offset``, scanning as little as possible.

        From the newest usable snapshot on; after a clean stop without any snapshot nothing is
        scanned (such a log has no producers). Snapshots are written (unsynced) at the last two
        segment bases and at ``last_offset``. What ``before_chunk`` raises ends the scan.
        """
        newest = segments.values[-SNAPSHOTS_AT_LAST_SEGMENTS:]  # also one that is empty, or past it
        snapshot_at = {*(segment.base_offset for segment in newest), last_offset}
        if is_clean and not self.snapshot_offsets:
            for offset in sorted(snapshot_at):
                self.end_offset = offset
                self.take_snapshot(sync=False)
            return
        self.truncate_and_reload(log_start_offset, last_offset, now_ms)
        if last_offset > self.end_offset:
            for segment in segments.values_between(self.end_offset, last_offset):
                start = max(segment.base_offset, self.end_offset, log_start_offset)
                self.end_offset = start
                if segment.base_offset in snapshot_at and start == segment.base_offset:
                    self.take_snapshot(sync=False)
                position = verified_floor(segment, start).position
                for chunk in scan_chunks(
                    segment.log_file,
                    position,
                    segment.size_bytes,
                    check_crc=False,
                    with_messages=True,
                ):
                    if before_chunk is not None:
                        before_chunk()
                    table = chunk.rows.table
                    is_wanted = table[:, BatchColumn.LAST_OFFSET] >= start
                    is_wanted &= table[:, BatchColumn.BASE_OFFSET] < last_offset
                    self.apply_rows(table[is_wanted], chunk.data)
        self.end_offset = last_offset
        self.take_snapshot(sync=False)

    def apply_rows(
        self,
        table: Rows,
        data: memoryview,
        on_completed: Callable[[CompletedTransaction], None] | None = None,
    ) -> None:
        """Apply these rows; ``data`` is the chunk that they point into.

        ``on_completed`` hears of each transaction before it is closed.
        """
        chosen = np.flatnonzero(table[:, BatchColumn.PRODUCER_ID] >= 0)
        if not len(chosen):
            return
        if not (table[chosen, BatchColumn.ATTRIBUTES] & _TRANSACTION_BITS).any():
            chosen = _last_rows_of_each(table, chosen)
        for row in chosen.tolist():
            batch = _producer_batch(table[row].tolist(), data)
            if batch is None:
                continue
            info = self.prepare(batch.producer_id, AppendOrigin.REPLICATION)
            completed = info.append(batch)
            self.update(info)
            if completed is not None:
                if on_completed is not None:
                    on_completed(completed)
                self.complete(completed)


def _last_rows_of_each(table: Rows, chosen: Rows) -> Rows:
    """At most the last five rows of each producer, in the order of the log."""
    ids = table[chosen, BatchColumn.PRODUCER_ID]
    order = np.argsort(ids, kind="stable")
    grouped = ids[order]
    ends = np.searchsorted(grouped, grouped, side="right")
    is_late = ends - np.arange(len(order)) <= BATCHES_TO_RETAIN
    return np.sort(chosen[order[is_late]])


def _producer_batch(row: list[int], data: memoryview) -> ProducerBatch | None:
    """One row as a producer's batch; None for a control batch without a marker of one."""
    attributes = row[BatchColumn.ATTRIBUTES]
    base_offset, last_offset = row[BatchColumn.BASE_OFFSET], row[BatchColumn.LAST_OFFSET]
    first_sequence = last_sequence = row[BatchColumn.BASE_SEQUENCE]
    if first_sequence != NO_SEQUENCE:
        last_sequence = add_to_sequence(first_sequence, last_offset - base_offset)
    control_type: int | None = None
    coordinator_epoch = -1
    if is_control(attributes):
        position = row[BatchColumn.POSITION]
        marker = read_batch_marker(data[position : position + row[BatchColumn.SIZE]])
        if marker is None:
            return None
        control_type, coordinator_epoch = int(marker.control_type), marker.coordinator_epoch
    return ProducerBatch(
        producer_id=row[BatchColumn.PRODUCER_ID],
        producer_epoch=row[BatchColumn.PRODUCER_EPOCH],
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        first_offset=base_offset,
        last_offset=last_offset,
        max_timestamp_ms=row[BatchColumn.MAX_TIMESTAMP],
        is_transactional=is_transactional(attributes),
        control_type=control_type,
        coordinator_epoch=coordinator_epoch,
    )
