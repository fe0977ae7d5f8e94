"""Goal: the writer runs in order, slices mass work, bounds its queue, fails what must fail.
Method: loop bodies called by hand on the twins, and managers on simulated threads.
"""

from __future__ import annotations

import errno
import gc
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog import errors
from kafkalog.broker.directory.commands import (
    AppendCommand,
    CallCommand,
    Command,
    EachCommand,
    Step,
)
from kafkalog.broker.directory.flusher import LogDirFlusher, ThreadMetrics
from kafkalog.broker.directory.limits import QueueBudget, TopicQuotas
from kafkalog.broker.directory.log_dir import LogDir
from kafkalog.broker.directory.storage_fault import fault_of
from kafkalog.broker.directory.writer import LogDirWriter
from kafkalog.broker.values import Acks, LogDirFault
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.log.values import LogAppendInfo
from kafkalog.observe.metrics import Metrics
from tests.sim.sim_clock import SimClock
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import SimManager, Sink, batch_of, records_of
from tests.sim.sim_random import SimRandom
from tests.sim.sim_threads import SimThreads

if TYPE_CHECKING:
    from kafkalog.broker.directory.commands import WriterContext
    from kafkalog.log.unified_log import UnifiedLog


class Bench:
    """A writer whose threads are the test itself."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        clock = self.clock = SimClock()
        threads = SimThreads(clock)
        self.sink = Sink()
        self.log_dir = LogDir(
            "/a", SimFilesystem(clock), clock, SimRandom(), threads, min_free_bytes=0
        )
        self.flusher = LogDirFlusher(self.log_dir, clock, threads, Metrics())
        self.budget = QueueBudget(threads.mutex(), limit_bytes)
        self.dropped: list[str] = []
        self.checkpoints = 0
        self.writer = LogDirWriter(
            self.log_dir,
            self.flusher,
            threads,
            self.budget,
            TopicQuotas(lambda _: 0, clock, threads.mutex(), Metrics()),
            self.sink,
            self,
            self._logs_here,
            ThreadMetrics("writer", clock, Metrics()),
        )

    def _logs_here(self, path: str) -> list[UnifiedLog]:
        self.dropped.append(path)
        return []

    def write_start_offsets(self, _: LogDir) -> None:
        self.checkpoints += 1

    def write_proofs(self, _: LogDir) -> None:
        self.checkpoints += 1


def test_order_and_one_delivery_a_drain() -> None:
    bench = Bench()
    seen: list[int] = []
    for number in range(5):
        bench.writer.submit(CallCommand(lambda number=number: seen.append(number)))  # type: ignore[misc]
    assert bench.writer.drain_once() == 5
    assert seen == [0, 1, 2, 3, 4]
    assert bench.sink.deliveries == 1
    assert bench.budget.used_bytes == 0


def test_mass_work_lets_others_pass() -> None:
    """At most 64 directory operations, then behind what waits."""
    bench = Bench()
    seen: list[str] = []
    bench.writer.submit(EachCommand([lambda: seen.append("mass")] * 100, 2))
    bench.writer.submit(CallCommand(lambda: seen.append("small")))
    bench.writer.drain_once()
    assert seen == ["mass"] * 32 + ["small"]
    while bench.writer.drain_once():
        pass
    assert seen.count("mass") == 100


def test_queue_is_bounded_in_bytes() -> None:
    bench = Bench(limit_bytes=1_000)
    bench.writer.submit(CallCommand(int))
    with pytest.raises(errors.Overloaded):
        bench.writer.submit(CallCommand(int))
    bench.writer.drain_once()
    bench.writer.submit(CallCommand(int))


def test_waiters_written_during_a_sync_share_the_next() -> None:
    """Group commit: the sync under way covers only what was there when it was planned."""
    bench = Bench()

    class Wait(Command):
        def run(self, writer: WriterContext) -> Step:
            writer.wait_for_start_offsets(self)
            return Step.WAIT

    waits = [Wait(None, 1) for _ in range(4)]
    bench.writer.submit(waits[0])
    bench.writer.drain_once()
    for wait in waits[1:]:
        bench.writer.submit(wait)
    bench.writer.drain_once()
    assert bench.sink.finished == []
    assert bench.flusher.flush_once() == 1
    bench.writer.drain_once()
    assert bench.sink.finished == waits[:1]
    assert bench.flusher.flush_once() == 1
    bench.writer.drain_once()
    assert bench.sink.finished == waits
    assert bench.checkpoints == 2
    assert bench.flusher.flush_once() == 0


def test_offline_fails_all_and_drops_handles_once() -> None:
    """M15: what waits gets LogDirOffline, later commands are refused at the door."""
    bench = Bench()
    command = CallCommand(int)
    bench.writer.submit(command)
    bench.log_dir.take_offline("gone")
    bench.log_dir.take_offline("again")
    bench.writer.drain_once()
    bench.writer.drain_once()
    assert isinstance(command.error, errors.LogDirOffline)
    assert bench.dropped == [bench.log_dir.path]
    assert bench.log_dir.offline_reason == "gone"
    with pytest.raises(errors.LogDirOffline):
        bench.writer.submit(CallCommand(int))


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), errors.DiskFull),
        ((errno.EMFILE, errno.ENFILE, errno.ENOMEM), errors.DescriptorsShort),
        ((errno.EIO, errno.EROFS, errno.ENOENT), errors.LogDirOffline),
    ],
)
def test_what_an_error_number_means(numbers: tuple[int, ...], fault: type[Exception]) -> None:
    """M15: a full disk and a shortage are no dead directory; the rest is."""
    for error in (OSError(number, "x") for number in numbers):
        bench = Bench()
        assert type(fault_of(error, "/a")) is fault
        with pytest.raises(fault), bench.log_dir.guard():
            raise error
        assert bench.log_dir.is_online is (fault is not errors.LogDirOffline)


def test_a_shortage_is_shown_for_a_minute_after_its_last_call() -> None:
    """Which directory, why, and in the log what to do; a full or dead one shows that instead."""
    bench = Bench()
    log_dir, clock = bench.log_dir, bench.clock
    with capture_logs() as lines:
        for _ in range(2):
            clock.sleep(40)
            with pytest.raises(errors.DescriptorsShort), log_dir.guard():
                raise OSError(errno.EMFILE, "Too many open files")
    assert [line["event"] for line in lines] == ["descriptors_short"] * 2
    assert "ulimit -n" in lines[0]["remedy"]
    clock.sleep(59)
    fault = log_dir.shown_fault
    assert fault is not None
    assert (fault.log_dir, fault.state) == ("/a", "failing")
    assert "Too many open files" in fault.reason
    clock.sleep(2)
    assert log_dir.shown_fault is None
    with pytest.raises(errors.DiskFull), capture_logs() as lines, log_dir.guard():
        raise OSError(errno.EFBIG, "File too large")
    assert "ulimit -f" in lines[0]["remedy"]
    assert log_dir.shown_fault == LogDirFault(
        "/a", "full", "A file in log directory /a cannot grow: File too large"
    )


def submit(sim: SimManager, partition: int, data: bytes, acks: Acks, **more: int) -> list[Command]:
    """Queue an append; the list gets the command when it ended."""
    done: list[Command] = []
    log = sim.operations.partition_log("t", partition)
    sim.operations.submit_produce(log, records_of(data, log), acks, on_done=done.append, **more)
    return done


@pytest.mark.parametrize("seed", range(4))
def test_appends_that_share_a_write_keep_their_order_and_acks(seed: int) -> None:
    """M01 M13: two partitions, both acks, and commands between them that go alone."""
    sim = SimManager(seed=seed).start().with_topic("t", 2)
    for partition in range(2):
        sim.produce("t", batch_of("first"), Acks.LEADER, partition)
    producer = build_batch(
        RecordColumns.of([None], ["p"], 1), producer_id=5, producer_epoch=0, base_sequence=0
    )
    plain = batch_of("a")
    acks = [Acks.LEADER, Acks.ALL] * 4
    sent = [submit(sim, number % 2, plain, each) for number, each in enumerate(acks)]
    sent.append(submit(sim, 0, producer, Acks.ALL))
    sent.append(submit(sim, 0, plain, Acks.LEADER, expected_offset=99))
    sent += [submit(sim, 0, plain, Acks.ALL), submit(sim, 0, producer, Acks.LEADER)]
    sim.threads.run_until_idle()
    ended = [done[0] for done in sent]
    assert [type(command.error) for command in ended if command.error] == [
        errors.ExpectedOffsetMismatch
    ]
    answers = [command.result for command in ended if isinstance(command.result, LogAppendInfo)]
    firsts = [answer.first_offset for answer in answers]
    assert firsts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 5]
    assert answers[-1].duplicate
    for partition, end in ((0, 7), (1, 5)):
        log = sim.operations.partition_log("t", partition)
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (end, end, end)
    sim.stop()


@pytest.mark.parametrize("seed", range(8))
def test_flush_messages_bounds_what_can_be_lost(seed: int) -> None:
    """M13: flush.messages=1 makes an acks=1 answer wait for its sync, in any interleaving."""
    sim = SimManager(seed=seed).start().with_topic("t", 1, {"flush.messages": "1"})
    log = sim.operations.partition_log("t", 0)
    for count in range(1, 4):
        assert sim.produce("t", batch_of("a"), Acks.LEADER).error is None
        assert log.recovery_point == count


def test_flush_ms_is_kept_by_the_task() -> None:
    """M13: an acks=1 append becomes durable within flush.ms and a second."""
    sim = SimManager().start().with_topic("t", 1, {"flush.ms": "2000"})
    log = sim.operations.partition_log("t", 0)
    sim.produce("t", batch_of("a"), Acks.LEADER)
    assert (log.high_watermark, log.recovery_point) == (1, 0)
    sim.clock.advance_ms(3_100)
    sim.threads.run_until_idle()
    assert log.recovery_point == 1


def test_closed_segments_are_flushed_after_a_roll() -> None:
    """flush-log: a roll makes the closed segment durable though nobody asked."""
    sim = SimManager().start().with_topic("t", 1, {"internal.segment.bytes": "100"})
    log = sim.operations.partition_log("t", 0)
    for _ in range(2):
        sim.produce("t", batch_of("a"), Acks.LEADER)
    sim.threads.run_until_idle()
    assert len(log.segments) == 2
    assert log.recovery_point == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_command_that_races_with_the_stop_is_answered(seed: int) -> None:
    """M01: run, or refused with NotReady; never left in the queue. Its bytes are given back."""
    sim = SimManager(seed=seed).start()
    unit = sim.manager.logs.units[0]
    outcomes: list[str] = []

    def waits() -> None:
        with suppress(errors.NotReady):
            unit.writer.call(int)
        outcomes.append("waited")

    def hears() -> None:
        command = CallCommand(int, lambda command: outcomes.append(str(command.error)))
        try:
            unit.writer.submit(command)
        except errors.NotReady:
            outcomes.append("refused")

    for body in (waits, hears) * 3:
        sim.threads.start("client", body)
    sim.threads.run_steps(seed % 10)
    unit.writer.stop()
    sim.threads.run_until_idle()
    assert len(outcomes) == 6, f"{6 - len(outcomes)} wait for ever"
    assert unit.writer._budget.used_bytes == 0


def test_a_deleted_log_is_let_go() -> None:
    """M28: topics that come and go for years leave nothing behind in the writer."""
    sim = SimManager().start().with_topic("t", 1)
    sim.produce("t", batch_of("a"))
    doomed = sim.operations.partition_log("t", 0)
    log = weakref.ref(doomed)
    records = records_of(batch_of("late"), doomed)
    late = AppendCommand(doomed, records, Acks.LEADER, None, None)
    writer = sim.manager.logs.unit_of(doomed).writer
    sim.operations.topics.delete("t")
    writer.submit(late)
    sim.threads.run_until_idle()
    assert isinstance(late.error, errors.UnknownTopic)
    sim.clock.advance_ms(200_000)
    sim.threads.run_until_idle()
    sim.sink.finished.clear()
    del late, doomed, records
    gc.collect()
    assert log() is None
