"""ProducerStateManager: all producers of one log, open transactions, and their snapshots.

Owns the entries, the transactions that are open or not yet below the high watermark, and the
``<offset>.snapshot`` files of a partition directory. Knows no segment: the scan of the log feeds
it. Writer thread (recovery: the loader). A snapshot is written without a sync (the flusher syncs
it) except at close; a torn one fails its CRC at load, is deleted and the next older one is taken.
Source: Kafka's ProducerStateManager, log-lifecycle 2, log-format.md 9.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from kafkalog.format.disk.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file_name
from kafkalog.format.disk.producer_snapshot import decode_snapshot, encode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.log.state.producer_state import LastRecord, ProducerAppendInfo, ProducerStateEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.segment.segment_file import MovableDirectory
    from kafkalog.log.state.producer_state import ProducerCheck
    from kafkalog.log.values import AppendOrigin, CompletedTransaction

_log = structlog.get_logger(__name__)

DEFAULT_EXPIRATION_MS = 86_400_000


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
