"""One partition that is written to until its disk stops, and what must hold of what is left.

``Ledger`` is what clients were told, plus the two checkpoints, which their owner writes atomically.
``PartitionRun`` carries a story out and keeps the ledger as it goes. ``check`` loads the log from
what a crash left and holds it against the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalog.broker.directory.checkpoints import checkpointed_start_offset
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import PREFIX_BYTES, patch_prefix, read_header
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
from kafkalog.log.values import AppendOrigin, Isolation
from tests.log_world import environment_of
from tests.naive.producers import NaiveProducers
from tests.partition_world import NOW_MS, batch, checked, split_batches
from tests.sim.sim_clock import SimClock
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.unified_log import UnifiedLog
    from tests.sim.crash_enumeration import CrashPoint

DIRECTORY = "/logs/orders-0"
CONFIG = LogConfig(internal_segment_bytes=700, segment_index_bytes=96, index_interval_bytes=150)
EVERYTHING = 1 << 20


def new_disk() -> SimFilesystem:
    """An empty partition directory, durable."""
    disk = SimFilesystem()
    disk.make_dir(DIRECTORY)
    disk.sync_all()
    return disk


@dataclass
class Ledger:
    """What was acknowledged and checkpointed. Batches are (base offset, last offset, bytes)."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    undecided: list[tuple[int, int, bytes]] = field(default_factory=list)  # an append under way
    given_up: set[tuple[int, int, bytes]] = field(default_factory=set)  # truncated, not synced
    durable_end: int = 0
    start: int = 0  # acknowledged as durable
    start_asked: int = 0
    recovery_point: int = 0  # checkpoint
    start_checkpoint: int = 0  # checkpoint, 0: no entry
    is_clean: bool = False
    corruption: Corruption = "keep"  # the daemon's default
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0


class PartitionRun:
    def __init__(self, disk: SimFilesystem, ledger: Ledger) -> None:
        self.clock = SimClock(NOW_MS)
        self.disk = disk
        disk.clock = self.clock
        self.ledger = ledger
        self.log = self.load()

    def load(self) -> UnifiedLog:
        """As the start of the daemon does it. The mark of a clean end goes first."""
        ledger = self.ledger
        was_clean, ledger.is_clean = ledger.is_clean, False
        self.log = load_log(
            DIRECTORY,
            CONFIG,
            environment_of(self.disk, self.clock),
            clean=was_clean,
            recovery_point=ledger.recovery_point,
            log_start_offset=ledger.start_checkpoint,
            corruption=ledger.corruption,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.log

    # ---- steps of a story

    def append(
        self, size: int = 60, *, producer: int = -1, transactional: bool = False, count: int = 1
    ) -> None:
        """One batch of count records; producers count their sequences up."""
        sequence = self.ledger.sequences.get(producer, 0)
        identity = (-1, -1, -1) if producer < 0 else (producer, 0, sequence)
        values: list[bytes | None] = [bytes([65 + self.log.log_end_offset % 26]) * size] * count
        self._append([batch(values, producer=identity, is_transactional=transactional)])
        if producer >= 0:
            self.ledger.sequences[producer] = sequence + count

    def append_many(self, count: int) -> None:
        self._append([batch([b"%d" % number * 40]) for number in range(count)])

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        marker = build_end_transaction_marker(producer, 0, 0, kind, timestamp_ms=NOW_MS)
        self._append([marker], AppendOrigin.COORDINATOR)

    def _append(self, batches: list[bytes], origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        ledger, base = self.ledger, self.log.log_end_offset
        ledger.undecided = []
        for data in batches:
            last = base + read_header(data).last_offset_delta
            stored = patch_prefix(data, base, 0) + data[PREFIX_BYTES:]
            ledger.undecided.append((base, last, stored))
            base = last + 1
        try:
            info = self.log.append(checked(b"".join(batches), CONFIG, origin=origin), synced=True)
        except OSError:
            if not self.log.is_broken:
                ledger.undecided = []  # cut back
            raise
        assert info.first_offset == ledger.undecided[0][0]
        ledger.batches += ledger.undecided
        ledger.undecided = []

    def flush(self, *, include_active: bool = True) -> None:
        """A group commit; its return is the acknowledgement."""
        end = self.log.log_end_offset if include_active else 0
        plan = self.log.plan_flush(include_active=include_active)
        if plan is not None:
            plan.run()
            self.log.mark_flushed(plan)
            end = max(end, plan.end_offset)
        self.ledger.durable_end = max(self.ledger.durable_end, end)
        self.ledger.given_up.clear()

    def roll(self) -> None:
        self.log.roll()

    def checkpoint(self) -> None:
        """Both checkpoint files, as the tasks write them."""
        self.checkpoint_recovery_point()
        self.checkpoint_start()

    def checkpoint_recovery_point(self) -> None:
        self.ledger.recovery_point = self.log.local.recovery_point

    def checkpoint_start(self) -> None:
        """``kafka-log-start-offset-checkpoint``: only what the first file name does not tell."""
        self.ledger.start_checkpoint = checkpointed_start_offset(self.log) or 0

    def delete_records(self, offset: int, *, answered: bool = True) -> None:
        """The log start moves; the answer comes behind the checkpoint."""
        self.ledger.start_asked = max(self.ledger.start_asked, offset)
        self.log.update_high_watermark(self.log.log_end_offset)
        assert self.log.delete_records(offset) == offset
        if answered:
            self.checkpoint_start()
            self.ledger.start = offset

    def retain(self, retention_bytes: int = -1) -> None:
        """A retention pass; what it takes may be gone after a crash, or not."""
        self.log.update_config(replace(CONFIG, retention_bytes=retention_bytes))
        planned = execute.plan_of(self.log, NOW_MS)
        assert planned.deletions
        base = execute.begin(self.log, planned)
        self.flush()
        self.ledger.start_asked = max(self.ledger.start_asked, planned.log_start_offset)
        execute.raise_start(self.log, NOW_MS, base)
        self.checkpoint_start()
        assert len(execute.finish(self.log)) == len(planned.deletions)

    def truncate_to(self, offset: int) -> None:
        """Cut; what was cut may come back until the next flush."""
        ledger = self.ledger
        ledger.recovery_point = min(ledger.recovery_point, offset)
        ledger.given_up |= set(ledger.batches)
        ledger.durable_end = min(ledger.durable_end, offset)
        self.log.truncate_to(offset)
        ledger.batches = [each for each in ledger.batches if each[1] < offset]

    def run_tasks(self) -> None:
        self.clock.advance_ms(CONFIG.file_delete_delay_ms)

    def stop_cleanly(self) -> None:
        """Flush, close, checkpoints, mark."""
        self.flush()
        self.log.close()
        self.checkpoint()
        self.ledger.is_clean = True

    def restart(self, *, clean: bool) -> None:
        """Another life on the same page cache."""
        if clean:
            self.stop_cleanly()
        else:
            self.log.close_handles()
        self.load()


def check(disk: SimFilesystem, ledger: Ledger, point: CrashPoint) -> None:
    """Everything that was promised, on what the crash left, and that the log goes on."""
    run = PartitionRun(disk, copy_of(ledger))
    found = check_content(run, ledger, is_kill=point.mode is None)
    check_producers(run.log)
    if point.mode is CrashMode.SUBSET or point.seed:
        return
    run.ledger.batches = found
    run.ledger.undecided = []
    run.append(producer=99)
    run.flush()
    check_invariants(run.log)
    run.checkpoint()
    check_next_life(run)


def check_next_life(run: PartitionRun) -> None:
    """What was flushed by the life behind the crash survives the next power cut."""
    expected = contents(run.log)
    after = run.disk.crash(CrashMode.DROP_ALL)
    again = PartitionRun(after, copy_of(run.ledger))
    check_invariants(again.log)
    assert contents(again.log) == expected, "a flush of the next life did not last"
    check_producers(again.log)


def check_content(
    run: PartitionRun, ledger: Ledger, *, is_kill: bool
) -> list[tuple[int, int, bytes]]:
    """I2 to I6: batches are a prefix that holds what was acknowledged."""
    log = run.log
    check_invariants(log)
    start, end = log.log_start_offset, log.log_end_offset
    assert ledger.start <= start <= max(ledger.start_asked, ledger.start), "I6: the log start"
    assert end >= ledger.durable_end, "I2: acknowledged as synced, and lost"
    found = contents(log)
    known = ledger.batches + ledger.undecided
    if ledger.given_up:
        allowed = ledger.given_up | set(known)
        assert set(found) <= allowed, "never appended"
        kept = [each for each in known if start <= each[1] < ledger.durable_end]
        assert [each for each in found if each[1] < ledger.durable_end] == kept, "I2"
    else:
        expected = [each for each in known if start <= each[1] < end]
        assert found == expected, "I3: not a prefix of what was appended"
        assert not found or found[-1][1] + 1 == end, "I1: the end"
    if is_kill and not ledger.given_up:
        assert end >= ledger.end, "I3: acknowledged, and lost by a kill"
    return found


def contents(log: UnifiedLog) -> list[tuple[int, int, bytes]]:
    """All batches from the log start to the log end.

    Of a compacted log the last offsets may be missing: a power cut that takes the last record of a
    segment leaves the gap that a clean could have made, when the next segment is empty.
    """
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        answer = log.read(offset, EVERYTHING, Isolation.LOG_END)
        if not answer.data and log.config.is_compacted:
            assert not log.segments.active.size_bytes, f"I9: nothing at {offset}, and more behind"
            break
        assert answer.data, f"I9: nothing at {offset} below the end"
        for data in split_batches(bytes(answer.data)):
            header = read_header(data)
            found.append((header.base_offset, header.last_offset, data))
        offset = answer.next_offset
    return found


def check_producers(log: UnifiedLog) -> None:
    """I25: as if every batch from the log start on had been read; aborted transactions too.

    Of producers that wrote nothing from the log start on nothing is asked: they may be forgotten.
    """
    whole = b"".join(
        segment.log_file.acquire().pread(segment.size_bytes, 0) for segment in log.segments.values
    )
    twin = NaiveProducers.of(split_batches(whole))
    for producer_id, expected in twin.producers.items():
        entry = log.producers.entries.get(producer_id)
        if entry is None or expected.last_offset < log.log_start_offset:
            assert expected.last_offset < log.log_start_offset, f"I25: producer {producer_id} lost"
            continue
        assert entry.producer_epoch == expected.epoch
        assert entry.last_sequence == expected.last_sequence, f"I25: sequence of {producer_id}"
        assert entry.last_offset == expected.last_offset, f"I25: offset of {producer_id}"
        assert entry.coordinator_epoch == expected.coordinator_epoch
        if expected.open_since is None or expected.open_since >= log.log_start_offset:
            assert entry.current_txn_first_offset == expected.open_since
    assert set(log.producers.entries) <= set(twin.producers) | _forgotten(log), "I25: invented"
    start, end = log.log_start_offset, log.log_end_offset
    first_open = twin.first_open_offset
    if first_open is None or first_open >= start:
        assert log.last_stable_offset == (end if first_open is None else first_open), "I25: LSO"
    indexed = [
        (each.producer_id, each.first_offset, each.last_offset)
        for each in log.local.collect_aborted(start, end)
    ]
    known = [each for each in twin.aborted if each[2] >= start]
    assert [each for each in indexed if each[1] >= start] == [
        each for each in known if each[1] >= start
    ], "read_committed would show aborted records"


def _forgotten(log: UnifiedLog) -> set[int]:
    """Producers whose batches went with old segments; the snapshot still knows them."""
    first = log.segments.first.base_offset
    return {
        producer_id
        for producer_id, entry in log.producers.entries.items()
        if entry.last_offset < first
    }


def copy_of(ledger: Ledger) -> Ledger:
    """So that a check does not change what the next one compares with."""
    return replace(
        ledger,
        batches=list(ledger.batches),
        undecided=list(ledger.undecided),
        given_up=set(ledger.given_up),
        sequences={},
    )
