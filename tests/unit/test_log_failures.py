"""Goal: a failing disk never makes a log give an offset twice or retry a failed flush; a failed
roll is undone; "nothing was appended" is true; no durable record is without its epoch.
Method: each disk call of an append, a roll and a flush fails in turn.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.commands import Command, JoinedAppendCommand
from kafkalog.broker.values import Acks
from kafkalog.errors import AppendOutcomeUnknown, DiskFull, KafkalogError, LogDirOffline
from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.log.log_config import LogConfig
from kafkalog.log.state.leader_epoch_cache import EpochEntry
from kafkalog.log.values import AppendOrigin
from kafkalog.server.protocol.errors import entry_of
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, checked
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import MUTATING, Effect, Fault
from tests.sim.sim_manager import SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_kafka_7866_a_failed_transaction_index_uses_up_its_offsets() -> None:
    """M07, KAFKA-7866: the marker is in the log, so no later append may take its offset."""
    world = PartitionWorld()
    world.append(batch([b"a"], producer=(7, 0, 0), is_transactional=True))
    failing = Fault(Effect.SHORT_WRITE, errno.EIO, frozenset({"write"}), ".txnindex", times=10**9)
    world.filesystem.faults.add(failing)
    marker = build_end_transaction_marker(7, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS)
    with pytest.raises(OSError, match=r"."):
        world.append(marker, origin=AppendOrigin.COORDINATOR)
    assert world.log.log_end_offset == 2
    with pytest.raises(LogDirOffline):
        world.append(batch([b"b"]))
    world.filesystem.faults.clear()
    world.reopen(clean=False)
    assert world.log.log_end_offset == 2
    assert world.append(batch([b"b"])).first_offset == 2


CONFIG = LogConfig(internal_segment_bytes=600, segment_index_bytes=96, index_interval_bytes=100)
CALLS = MUTATING | {"open"}


def new_world(*, is_full_index: bool = False) -> PartitionWorld:
    """One segment that the next append of 200 bytes does not fit into."""
    world = PartitionWorld(LogConfig(segment_index_bytes=0) if is_full_index else CONFIG)
    if not is_full_index:
        for number in range(4):
            world.append(batch([b"%d" % number * 60], producer=(7, 0, number)))
    return world


def roll_by_append(world: PartitionWorld) -> None:
    world.append(batch([b"x" * 200]))


@pytest.mark.parametrize("is_full_index", [False, True])
@pytest.mark.parametrize("effect", [Effect.RAISE, Effect.SHORT_WRITE])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE])
@pytest.mark.parametrize("times", [1, 3])
def test_a_failed_roll_can_be_tried_again(
    error: int, effect: Effect, times: int, *, is_full_index: bool
) -> None:
    """M07: whatever call fails, the log is whole, takes the next append and loads again.

    Three calls in a row fail too, so that some of the undoing fails; only then may it be broken.
    """
    whole = new_world(is_full_index=is_full_index)
    calls = whole.filesystem.faults.add(Fault(kinds=CALLS, nth=10**9))
    roll_by_append(whole)
    assert calls.seen >= 4
    for nth in range(1, calls.seen + 1):
        world = new_world(is_full_index=is_full_index)
        end = world.log.log_end_offset
        fault = Fault(effect, error, CALLS, nth=nth, times=times)
        world.filesystem.faults.add(fault)
        with pytest.raises(OSError, match="simulated"):
            roll_by_append(world)
        world.filesystem.faults.clear()
        assert world.log.log_end_offset == end, f"call {nth}"
        if times == 1:
            assert not world.log.is_broken, f"call {nth}"
        if not world.log.is_broken:
            roll_by_append(world)
            assert world.log.log_end_offset == end + 1
        expected = world.read_all(0)
        world.reopen(clean=not world.log.is_broken and bool(nth % 2))
        assert world.read_all(0) == expected, f"call {nth}"
        roll_by_append(world)
        assert [each.offset for each in world.read_all(0)] == list(
            range(world.log.log_end_offset)
        ), f"call {nth}"


@pytest.mark.parametrize("part", [".log", ".index", ".timeindex", ".snapshot"])
def test_appends_resume_by_themselves(part: str) -> None:
    """M15: a full disk in the middle of a roll is 507 for a while, no offline directory."""
    small = LogConfig(internal_segment_bytes=200, segment_index_bytes=96)
    sim = SimManager(topic_defaults=small).start().with_topic("t", 1)
    assert sim.produce("t", batch_of("a" * 80)).error is None
    active = sim.operations.partition_log("t", 0).segments.active
    calls = frozenset({"create", "write", "truncate"})
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=calls, path_contains=f"1{part}"))
    assert isinstance(sim.produce("t", batch_of("b" * 80)).error, DiskFull)
    assert isinstance(sim.produce("t", batch_of("b" * 80)).error, DiskFull)
    sim.disk.faults.clear()
    sim.clock.advance_ms(1_000)
    assert sim.operations.readiness().offline_dirs == 0
    command = sim.produce("t", batch_of("c" * 80))
    assert command.error is None
    log = sim.operations.partition_log("t", 0)
    assert log.high_watermark == 2
    assert log.segments.active is not active


OUTCOME_CONFIG = BrokerConfig(log_dirs=("/data/a",))
DEFAULTS = LogConfig(segment_index_bytes=96, index_interval_bytes=0)
NOTHING_APPENDED = (429, 503, 507)
FOR_GOOD = 10**9
ALONE = ((Acks.ALL,),)
TOGETHER = ((Acks.ALL, Acks.LEADER, Acks.ALL),)
JOINED = ((Acks.ALL, Acks.ALL, Acks.ALL),)  # one command
ONE_BY_ONE = ((Acks.ALL,), (Acks.LEADER,), (Acks.ALL,))
ROLLS = {"internal.segment.bytes": "100"}  # at every append
SYNCS = {"flush.messages": "1"}  # before every answer
Turns = tuple[tuple[Acks, ...], ...]


class Run:
    """Appends in turns (those of one turn wait together) after some that were acknowledged."""

    def __init__(self, fault: Fault, turns: Turns, overrides: Mapping[str, str]) -> None:
        self.sim = SimManager(config=OUTCOME_CONFIG, topic_defaults=DEFAULTS).start()
        self.sim.operations.topics.create("t", 1, overrides)
        for number in range(3):
            assert self.sim.produce("t", batch_of(f"old-{number}")).error is None
        assert self.sim.delete_records("t", 1).error is None  # the next flush writes the epochs
        self.log = self.sim.operations.partition_log("t", 0)
        self.sim.disk.faults.add(fault)
        self.errors: dict[bytes, KafkalogError | None] = {}
        for turn in turns:
            if turns is JOINED:
                self._submit_joined(turn)
            else:
                for acks in turn:
                    self._submit(acks)
            self.sim.threads.run_until_idle()

    def _submit(self, acks: Acks) -> None:
        value = b"new-%d" % len(self.errors)
        self._note(value, None)
        try:
            self.sim.operations.submit_produce(
                self.log,
                records_of(batch_of(value.decode()), self.log),
                acks,
                on_done=partial(self._note_done, value),
            )
        except LogDirOffline as error:
            self._note(value, error)

    def _submit_joined(self, turn: tuple[Acks, ...]) -> None:
        command = JoinedAppendCommand(self.log, turn[0])
        for _ in turn:
            value = b"new-%d" % len(self.errors)
            self._note(value, None)
            data, now_ms = batch_of(value.decode()), self.sim.clock.wall_ms()
            command.add(data, 1, now_ms, partial(self._note_done, value))
        try:
            self.sim.operations.submit_appends(self.log, [command])
        except LogDirOffline as error:
            command.error = error
            command.complete()

    def _note_done(self, value: bytes, command: Command) -> None:
        self._note(value, command.error)

    def _note(self, value: bytes, error: KafkalogError | None) -> None:
        self.errors[value] = error

    def stored(self) -> bytes:
        """Bytes of the log after kill -9 and a restart on a healthy disk."""
        disk = self.sim.kill()
        again = SimManager(disk, config=OUTCOME_CONFIG, topic_defaults=DEFAULTS).start()
        assert again.operations.partition_log("t", 0).log_end_offset >= 3
        names = sorted(name for name in disk.list_dir("/data/a/t-0") if name.endswith(".log"))
        return b"".join(disk.read_file(f"/data/a/t-0/{name}") for name in names)


@pytest.mark.parametrize("times", [1, FOR_GOOD])
@pytest.mark.parametrize(
    ("number", "effect"),
    [(errno.ENOSPC, Effect.SHORT_WRITE), (errno.EMFILE, Effect.RAISE), (errno.EIO, Effect.RAISE)],
)
@pytest.mark.parametrize(
    ("overrides", "turns"),
    [
        *(({}, ONE_BY_ONE), ({}, TOGETHER), ({}, JOINED)),
        *((ROLLS, ONE_BY_ONE), (ROLLS, TOGETHER), (ROLLS, JOINED)),
        *((SYNCS, ONE_BY_ONE), (SYNCS, JOINED)),
    ],
)
def test_no_refusal_leaves_a_record(
    overrides: Mapping[str, str], turns: Turns, number: int, effect: Effect, times: int
) -> None:
    """M15: writes, index entries, rolls, cuts, epochs and syncs."""
    nth = 0
    while True:
        nth += 1
        fault = Fault(effect, number, path_contains="/data/a", nth=nth, times=times)
        run = Run(fault, turns, overrides)
        struck = fault.seen >= nth
        stored = run.stored()
        for value, error in run.errors.items():
            if error is None:
                assert value in stored, (nth, value)
            elif entry_of(error).status in NOTHING_APPENDED:
                assert value not in stored, (nth, value, error)
            else:
                assert isinstance(error, AppendOutcomeUnknown)
        if not struck:
            assert not any(run.errors.values())
            assert nth > 2
            return


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("turns", [ALONE, TOGETHER, JOINED])
@pytest.mark.parametrize("kind", ["datasync", "sync_dir"])
def test_a_failed_sync_names_the_offsets(kind: str, turns: Turns, number: int) -> None:
    """M15: 50003, retriable, and where the records were written."""
    run = Run(Fault(error=number, kinds=frozenset({kind})), turns, ROLLS)
    failed = [error for error in run.errors.values() if error is not None]
    assert failed
    for error in failed:
        assert isinstance(error, AppendOutcomeUnknown)
        assert (entry_of(error).error_code, error.retriable) == (50003, True)
    labels = {"topic": "t", "error": "AppendOutcomeUnknown"}
    counted = run.sim.metrics.registry.get_sample_value("kafkalog_append_refusals_total", labels)
    assert counted == len(failed)
    first = failed[0]
    assert isinstance(first, AppendOutcomeUnknown)
    assert (first.details["first_offset"], first.details["last_offset"]) == (3, 3)
    assert "written at offset 3" in first.message


@pytest.mark.parametrize(
    ("number", "kind", "offline_dirs"),
    [
        (errno.ENOMEM, "datasync", 1),
        (errno.ENOSPC, "datasync", 1),
        (errno.EIO, "sync_dir", 1),
        (errno.EMFILE, "sync_dir", 0),
        (errno.ENFILE, "sync_dir", 0),
    ],
)
def test_only_an_open_without_descriptor_lets_the_directory_live(
    number: int, kind: str, offline_dirs: int
) -> None:
    """M15: a sync that ran short of memory may have dropped pages, and would succeed next time."""
    fault = Fault(error=number, kinds=frozenset({kind}))
    run = Run(fault, ALONE, ROLLS)
    assert isinstance(run.errors[b"new-0"], AppendOutcomeUnknown)
    assert run.sim.operations.readiness().offline_dirs == offline_dirs


def test_what_could_not_be_cut_back_is_no_refusal() -> None:
    """M15: whole in the file, its index entry failed and the cut as well: a restart finds it."""
    run = Run(
        Fault(error=errno.ENOSPC, kinds=frozenset({"write", "truncate"}), nth=2, times=FOR_GOOD),
        ALONE,
        {},
    )
    error = run.errors[b"new-0"]
    assert isinstance(error, AppendOutcomeUnknown)
    assert "first_offset" not in error.details
    later = run.sim.produce("t", batch_of("later"), Acks.LEADER).error
    assert isinstance(later, DiskFull | LogDirOffline)
    assert b"new-0" in run.stored()


def test_a_partition_that_takes_no_appends_is_shown_until_a_restart() -> None:
    """M15: which one, of which directory, for a probe and with the remedy in the log."""
    sim = SimManager(config=OUTCOME_CONFIG, topic_defaults=DEFAULTS).start().with_topic("t", 1)
    assert sim.produce("t", batch_of("a")).error is None
    calls = frozenset({"write", "truncate"})
    sim.disk.faults.add(Fault(error=errno.EMFILE, kinds=calls, path_contains="/t-0/", times=9))
    with capture_logs() as lines:
        assert isinstance(sim.produce("t", batch_of("b")).error, AppendOutcomeUnknown)
    sim.disk.faults.clear()
    sim.clock.advance_ms(600_000)
    assert isinstance(sim.produce("t", batch_of("c")).error, LogDirOffline)
    (fault,) = sim.operations.readiness().faults
    assert (fault.log_dir, fault.state) == ("/data/a", "failing")
    assert fault.reason.startswith("t-0 takes no appends: ")
    (line,) = [line for line in lines if line["event"] == "log_takes_no_appends"]
    assert line["remedy"].startswith("Restart the daemon")


PATH = f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}"
SMALL = LogConfig(segment_index_bytes=96)


def on_disk(world: PartitionWorld) -> list[EpochEntry]:
    return [EpochEntry(*pair) for pair in decode_leader_epochs(world.filesystem.read_file(PATH))]


def test_kafka_15046_the_writer_syncs_nothing() -> None:
    """M07, KAFKA-15046: a new epoch, a roll and a truncation leave the syncs to the flusher."""
    world = PartitionWorld()
    syncs = frozenset({"sync", "datasync", "sync_dir"})
    counter = world.filesystem.faults.add(Fault(kinds=syncs, nth=10**9))
    world.append(batch([b"a"]), synced=True)
    world.log.append(checked(batch([b"b"])), leader_epoch=4, synced=True)
    world.log.roll()
    world.append(batch([b"c"]))
    world.log.truncate_to(2)
    assert counter.seen == 0


def test_a_new_partition_has_its_first_epoch_on_disk() -> None:
    """M02: as Kafka's, whose leader notes its epoch before the first append; durable."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 1)
    log = sim.operations.partition_log("t", 0)
    path = f"{log.directory}/{LEADER_EPOCH_CHECKPOINT}"
    assert sim.disk.read_file(path) == b"0\n1\n0 0\n"
    assert log.epochs.entries == (EpochEntry(0, 0),)
    assert sim.disk.crash(CrashMode.DROP_ALL).read_file(path) == b"0\n1\n0 0\n"
    written = sim.disk.faults.add(Fault(path_contains="leader-epoch", nth=10**9))
    assert sim.produce("t", batch_of("a")).error is None
    assert written.seen == 0


def changed_epochs() -> SimManager:
    """A log of two records with the start at 1: its next flush writes the epochs."""
    sim = SimManager(topic_defaults=SMALL).start().with_topic("t", 1)
    sim.produce("t", batch_of("a"))
    sim.produce("t", batch_of("b"))
    assert sim.delete_records("t", 1).error is None
    return sim


@pytest.mark.parametrize("kind", ["create", "write", "sync"])
def test_no_space_for_epochs_is_no_dead_directory(kind: str) -> None:
    """M15: the outcome is unknown, not refused; with space again it is synced and readable."""
    sim = changed_epochs()
    fault = Fault(error=errno.ENOSPC, kinds=frozenset({kind}), path_contains="leader-epoch")
    sim.disk.faults.add(fault)
    assert isinstance(sim.produce("t", batch_of("c")).error, AppendOutcomeUnknown)
    log = sim.operations.partition_log("t", 0)
    assert (log.high_watermark, log.log_end_offset) == (2, 3)
    sim.disk.faults.clear()
    sim.clock.advance_ms(1_000)
    assert sim.produce("t", batch_of("d")).error is None
    assert log.high_watermark == 4
    assert sim.operations.readiness().offline_dirs == 0


def test_a_failing_disk_is_still_one() -> None:
    """M15: an I/O error at the epochs takes the directory offline."""
    sim = changed_epochs()
    fault = Fault(kinds=frozenset({"write"}), path_contains="leader-epoch")
    sim.disk.faults.add(fault)
    assert isinstance(sim.produce("t", batch_of("c")).error, AppendOutcomeUnknown)
    assert sim.operations.readiness().offline_dirs == 1
