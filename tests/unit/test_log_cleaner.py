"""Goal: cleaner threads never meet anybody in a log, end when told, and never die for good; an
order of several cleans ends once, with every end in its place.
Method: simulated threads and clock; changes in the middle of a clean.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.compaction.cleaning import submit_each
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.cleaner.log_cleaner_manager import NONE
from kafkalog.cleaner.stats import CleaningRun, CleanRequest
from kafkalog.errors import CleaningConflict, CorruptBatch, DiskFull, InvalidRequest, NotReady
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.log_config import LogConfig
from tests.cleaning_daemon import BOTH, COMPACTED, NOW_MS, CleaningDaemon, keyed_batch
from tests.sim.sim_clock import SimClock
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager
from tests.sim.sim_threads import SimThreads
from tests.there import there
from tests.unit.test_compacted_logs import cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.compaction.cleaning import CleanEnd
    from kafkalog.log.retention.plan import RetentionPlan
    from kafkalog.log.unified_log import UnifiedLog


T0 = TopicPartition("t", 0)
DAY = 86_400_000
RETAINED = LogConfig(cleanup_policy=BOTH, internal_segment_bytes=300, segment_index_bytes=240)


def delete(world: CleaningDaemon) -> None:
    world.sim.operations.topics.delete("t")


def end_compaction(world: CleaningDaemon) -> None:
    world.sim.operations.topics.alter_configs("t", [ConfigChange("cleanup.policy", "delete")])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("change", [delete, end_compaction])
def test_a_change_that_ends_a_clean(change: Callable[[CleaningDaemon], None], seed: int) -> None:
    """It takes the log out of the cleaner's hands before it returns."""
    world = CleaningDaemon(seed=seed, threads=2)
    log = world.topic()
    runs = world.run_into_a_clean()

    def look(_: object) -> None:
        assert log.refusal is None, "cleaned behind its deletion"
        world.sim.threads.switch_point()

    world.cleaners.on_chunk = look
    change(world)
    assert T0 not in world.cleaners.at_work
    assert world.states.state_of(T0) == NONE
    world.turn()
    assert [run.is_aborted for run in runs] == [True]
    assert world.cleaners.cleaned == []
    assert world.states.failures() == {}


@pytest.mark.parametrize("seed", range(20))
def test_retention_and_cleaning_of_one_log_never_overlap(seed: int) -> None:
    """Whoever asks for the retention: by hand, by the task, beside two cleaner threads."""
    defaults = replace(RETAINED, min_cleanable_dirty_ratio=0.0, retention_bytes=900)
    world = CleaningDaemon(seed=seed, threads=2, topic_defaults=defaults)
    switch_point = world.sim.threads.switch_point
    retention, retained = world.sim.manager.retention, list[int]()
    finish = retention.retain

    def retain_and_look(log: object) -> object:
        assert T0 not in world.cleaners.at_work, "retained while it is cleaned"
        state = world.states.state_of(T0)
        assert state != NONE, "nobody keeps the cleaner out"
        switch_point()
        assert T0 not in world.cleaners.at_work, "cleaned while it is retained"
        taken = finish(log)  # type: ignore[arg-type] # the one log there is
        retained.append(len(taken))
        return taken

    retention.retain = retain_and_look  # type: ignore[method-assign, assignment] # a look, no fake
    world.topic("t", 6)
    world.cleaners.on_chunk = lambda _: switch_point()
    world.sim.disk.on_call = switch_point
    for _ in range(6):
        world.fill("t", 8)
        runs = world.order()
        by_hand = world.sim.threads.start("operator", lambda: _retain(world))
        world.sim.threads.run_steps(seed * 3)
        world.turn()
        assert by_hand.join()
        while not runs:
            world.turn()
    assert sum(retained) > 0
    assert world.cleaners.cleaned


def _retain(world: CleaningDaemon) -> None:
    world.sim.operations.retention.retain("t", 0, dry_run=False)


def test_old_segments_of_a_compacted_log_go_in_the_cleaners_thread() -> None:
    world = CleaningDaemon(topic_defaults=RETAINED)
    world.sim.operations.topics.create("t", 1, {})
    for number in range(12):
        batch = keyed_batch((f"k{number}", "v" * 40), timestamp_ms=NOW_MS - 30 * DAY)
        world.sim.produce("t", batch)
    world.sim.threads.run_until_idle()
    report = world.sim.operations.retention.describe("t", 0)
    schedule, due = there(report.schedule), there(report.fates[0].due)
    assert (schedule.is_cleaners, schedule.check_interval_ms) == (True, 15_000)
    assert due.latest_ms <= report.now_ms + 15_000
    world.sim.clock.advance_ms(there(due.expected_ms) - report.now_ms + 1)
    assert world.log().log_start_offset > 0


def test_retention_ends_a_swap_that_a_fault_stopped() -> None:
    sim = SimManager().start()
    configs = {"cleanup.policy": "compact,delete", "internal.segment.bytes": "300"}
    sim.operations.topics.create("t", 1, configs)
    for number in range(12):
        sim.produce("t", keyed_batch((f"k{number % 3}", "v" * 40)))
    log = sim.operations.partition_log("t", 0)
    second = segment_file_name(log.segments.values[1].base_offset, ".log")
    rename = frozenset({"rename"})  # the first one is of the new file
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=rename, path_contains=second, nth=2))
    assert isinstance(cleaned(sim).error, DiskFull)
    there(log.local.pending_swap)
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.bytes", "1")])
    sim.operations.retention.retain("t", 0, dry_run=False)
    active = log.segments.active.base_offset
    assert log.log_start_offset == active
    assert log.local.pending_swap is None
    names = {entry.name for entry in sim.disk.list_dir_stats(log.directory)}
    assert {name for name in names if name.endswith((".log", ".swap"))} == {
        segment_file_name(active, ".log")
    }
    again = SimManager(sim.kill()).start()
    assert again.operations.partition_log("t", 0).log_start_offset == active


def test_kafka_19895_an_uncleanable_log_still_loses_what_retention_deletes() -> None:
    defaults = replace(RETAINED, min_cleanable_dirty_ratio=0.0, retention_ms=3_600_000)
    world = CleaningDaemon(topic_defaults=defaults)
    world.topic()
    world.cleaners.errors.extend(
        CorruptBatch("The CRC is wrong", file="x.log", position=9) for _ in range(3)
    )
    world.sim.clock.advance_ms(600_000)
    assert there(world.states.failure_of(T0)).is_uncleanable
    world.sim.clock.advance_ms(3_600_000)
    assert world.log().log_start_offset > 0
    assert world.states.failure_of(T0) is None


def test_a_clock_that_jumps_ahead_deletes_nothing_of_a_compacted_log_until_accepted() -> None:
    """The whole log would go: a thread holds it as the task holds others. Kafka deletes at once."""
    world = CleaningDaemon(topic_defaults=RETAINED)
    world.topic()
    world.turn()
    world.sim.clock.step_wall_ms(365 * DAY)
    for _ in range(15):
        world.turn()
    assert world.log().log_start_offset == 0
    world.sim.clock.advance_ms(300_000)
    assert world.log().log_start_offset == 0
    assert world.sim.operations.retention.accept_clock().logs
    world.turn()
    assert world.log().log_start_offset > 0


@pytest.mark.parametrize("seed", range(10))
def test_shutdown_aborts_the_clean(seed: int) -> None:
    world = CleaningDaemon(seed=seed)
    world.topic()
    world.topic("u")
    runs, waiting = world.run_into_a_clean(), world.order("u")
    world.sim.stop()
    (aborted,) = runs
    assert aborted.is_aborted
    (refused,) = waiting
    assert isinstance(refused.error, NotReady) or refused.is_aborted
    assert world.cleaners.cleaned == []
    assert world.sim.manager.cleaning.states.failures() == {}


def test_a_thread_that_meets_a_defect_is_started_again() -> None:
    world = CleaningDaemon()
    world.topic()
    cleaning = world.sim.manager.cleaning
    plan, defects = cleaning.plan_retention, [RuntimeError("a defect")]

    def fail_once(log: UnifiedLog, jump_ms: int) -> RetentionPlan | None:
        if defects:
            raise defects.pop()
        return plan(log, jump_ms)

    cleaning.plan_retention = fail_once  # type: ignore[method-assign] # one defect
    world.turn()
    world.turn()
    (status,) = cleaning.cleaner.threads()
    assert (status.is_alive, status.restarts) == (True, 1)
    assert not defects
    assert len(world.cleaners.cleaned) == 1
    assert world.states.state_of(T0) == NONE


def test_the_throttle_makes_a_clean_as_slow_as_it_says() -> None:
    world = CleaningDaemon(bytes_per_second=100)
    world.topic(batches=40)
    started_ms = world.sim.clock.wall_ms()
    world.cleaners.on_chunk = lambda _: world.sim.clock.sleep(0.05)
    runs = world.order()
    world.sim.threads.run_until(lambda: bool(runs))
    took_ms = world.sim.clock.wall_ms() - started_ms
    size = runs[0].stats.bytes_read if runs[0].stats else 0
    assert took_ms >= size * 10 * 0.8, "the last period may be short"
    assert took_ms < size * 20
    world.fill("t", 40)
    again = world.run_into_a_clean()
    started_ms = world.sim.clock.wall_ms()
    world.states.abort_cleaning(T0)
    assert world.sim.clock.wall_ms() == started_ms
    world.sim.threads.run_until_idle()
    assert [run.is_aborted for run in again] == [True]


@pytest.mark.parametrize(("threads", "rate"), [(1, 1_000_000), (1, 100_000), (2, 400_000)])
def test_the_throttle_holds_over_any_second_of_a_clean(threads: int, rate: int) -> None:
    """Also of one that would end within the 300 ms after which Kafka looks."""
    world, traffic = throttled(threads, float(rate), cleans=threads)
    began_ns = world.clock.monotonic_ns()
    _run_cleans(world, threads)
    seconds = (world.clock.monotonic_ns() - began_ns) / 1e9
    total = sum(size for _, size in traffic)
    assert most_in_a_second(traffic) <= 1.2 * rate
    assert total / seconds > 0.9 * rate


def test_a_rate_that_is_lowered_holds_at_once() -> None:
    """In the middle of a segment, which was read in larger chunks before."""
    world, traffic = throttled(1, 1e308, cleans=1)
    cleaner = world.manager.cleaning.cleaner
    observe = cleaner.throttler.observe

    def lower(size_bytes: int, now_ns: int) -> int:
        if len(traffic) == 1:
            cleaner.throttler.observe = observe  # type: ignore[method-assign] # once
            slow = replace(cleaner.config, io_max_bytes_per_second=200_000.0)
            cleaner.reconfigure(slow)
            traffic.clear()
        return observe(size_bytes, now_ns)

    cleaner.throttler.observe = lower  # type: ignore[method-assign] # in the middle of a clean
    _run_cleans(world, 1)
    assert len(traffic) > 20
    assert most_in_a_second(traffic[1:]) <= 1.2 * 200_000


def throttled(threads: int, rate: float, cleans: int) -> tuple[SimManager, list[tuple[int, int]]]:
    """A daemon with topics to clean; time and size of all that its cleaners read and write."""
    world = SimManager(
        config=BrokerConfig(
            log_dirs=DIRS, log_cleaner_threads=threads, log_cleaner_io_max_bytes_per_second=rate
        ),
        topic_defaults=LogConfig(cleanup_policy=BOTH, segment_index_bytes=4_096),
    ).start()
    batch = keyed_batch(*((f"k{number}", "v" * 1_000) for number in range(4)))
    for name in range(cleans):
        world.with_topic(f"t{name}")
        log = world.operations.partition_log(f"t{name}", 0)
        for _ in range(2):
            for _ in range(250):
                world.produce(f"t{name}", batch, Acks.LEADER)
            world.manager.logs.unit_of(log).writer.call(log.roll)
    traffic = list[tuple[int, int]]()
    throttler = world.manager.cleaning.cleaner.throttler
    observe = throttler.observe

    def listen(size_bytes: int, now_ns: int) -> int:
        traffic.append((now_ns, size_bytes))
        return observe(size_bytes, now_ns)

    throttler.observe = listen  # type: ignore[method-assign] # a look, no fake
    return world, traffic


def _run_cleans(world: SimManager, count: int) -> None:
    """Of all topics at once."""
    done = list[CleaningRun]()
    for name in range(count):
        log = world.operations.partition_log(f"t{name}", 0)
        world.manager.cleaning.cleaner.submit(CleanRequest(log, False, done.append))
    world.threads.run_until(lambda: len(done) == count)
    assert [run.error for run in done] == [None] * count


def most_in_a_second(traffic: list[tuple[int, int]]) -> int:
    """Of all seconds that begin with a chunk."""
    return max(
        sum(size for at_ns, size in traffic if start_ns <= at_ns < start_ns + 1_000_000_000)
        for start_ns, _ in traffic
    )


def test_the_number_of_threads_changes_at_run_time() -> None:
    """Kafka's rule (half to double, at least 1), in force on return, aborts what is in work."""
    world = CleaningDaemon(threads=2)

    def alter(key: str, value: str | None) -> None:
        world.sim.operations.alter_broker_configs([ConfigChange(key, value)])

    for refused, words in (("5", "more than double"), ("0", "at least 1")):
        with pytest.raises(InvalidRequest, match=words):
            alter("log.cleaner.threads", refused)
    alter("log.cleaner.threads", "4")
    cleaner = world.sim.manager.cleaning.cleaner
    assert [status.is_alive for status in cleaner.threads()] == [True] * 4
    with pytest.raises(InvalidRequest, match="less than half the current value 4"):
        alter("log.cleaner.threads", "1")
    with pytest.raises(InvalidRequest, match="dedupe"):
        alter("log.cleaner.dedupe.buffer.size", str(4 * 1_048_576))
    world.topic()
    runs = world.run_into_a_clean()
    alter("log.cleaner.threads", None)
    assert len(cleaner.threads()) == 2
    assert world.cleaners.at_work == set()
    world.turn()
    assert [run.is_aborted for run in runs] == [True]
    assert len(world.cleaners.cleaned) == 1


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_higher_rate_ends_the_wait_for_the_lower_one(*, is_aborted: bool) -> None:
    world = CleaningDaemon(bytes_per_second=0.001)
    world.cleaners.on_chunk = lambda _: world.sim.clock.sleep(0.4)
    world.topic()
    runs = world.order()
    world.sim.clock.advance_ms(60_000)
    assert not runs
    if is_aborted:
        world.states.abort_cleaning(T0)
        world.sim.threads.run_until(lambda: bool(runs))
        runs = world.order()
    rate = ConfigChange("log.cleaner.io.max.bytes.per.second", "1000000")
    world.sim.operations.alter_broker_configs([rate])
    world.sim.clock.advance_ms(60_000)
    assert [run.error for run in runs] == [None]


def test_a_shorter_pause_counts_at_once() -> None:
    """log.cleaner.backoff.ms that was far too long is put right without a restart."""
    world = CleaningDaemon()
    alter = world.sim.operations.alter_broker_configs
    alter([ConfigChange("log.cleaner.backoff.ms", "9223372036854775807")])
    world.sim.clock.advance_ms(60_000)
    alter([ConfigChange("log.cleaner.backoff.ms", "1000")])
    world.topic(min_cleanable_dirty_ratio="0")
    world.sim.clock.advance_ms(3_000)
    assert world.cleaners.cleaned


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.backoff.ms", "9223372036854775807"),
        ("log.cleaner.backoff.ms", "0"),
        ("log.cleaner.io.max.bytes.per.second", "1.0E-300"),
    ],
)
def test_extreme_settings_end_no_thread(key: str, value: str) -> None:
    world = CleaningDaemon()
    world.sim.operations.alter_broker_configs([ConfigChange(key, value)])
    world.cleaners.on_chunk = lambda _: world.sim.clock.sleep(0.4)
    world.topic()
    runs = world.order()
    world.sim.clock.advance_ms(60_000)
    assert bool(runs) is (key == "log.cleaner.backoff.ms")
    world.states.abort_cleaning(T0)
    world.sim.stop()
    assert runs


def test_a_request_cleans_whatever_the_ratio() -> None:
    world = CleaningDaemon()
    log = world.topic(min_cleanable_dirty_ratio="1")
    world.turn()
    assert world.cleaners.cleaned == []
    dry, wet, idle = world.order(is_dry=True), world.order(), world.order()
    world.sim.threads.run_until(lambda: bool(idle))
    end = log.segments.active.base_offset
    assert world.cleaners.cleaned == [(T0, 0, end, True), (T0, 0, end, False)]
    assert dry[0].stats is not None
    assert wet[0].end_offset == end == world.checkpoint()
    assert (idle[0].stats, idle[0].error) == (None, None)
    world.sim.manager.cleaning.pause(T0)
    refused = world.order()
    world.sim.threads.run_until(lambda: bool(refused))
    assert isinstance(refused[0].error, CleaningConflict)


def test_a_request_does_not_end_the_pause() -> None:
    world = CleaningDaemon()
    world.topic(min_cleanable_dirty_ratio="0")
    dry = world.order(is_dry=True)
    world.sim.threads.run_until(lambda: bool(dry))
    world.sim.clock.advance_ms(1_000)
    assert [is_dry for *_, is_dry in world.cleaners.cleaned] == [True]
    world.sim.clock.advance_ms(15_000)
    assert [is_dry for *_, is_dry in world.cleaners.cleaned] == [True, False]


def test_what_came_of_a_request_is_known_at_once() -> None:
    """Metrics are made of what the threads saw last, and none looks again before its pause ends."""

    def fail(_: object) -> None:
        raise CorruptBatch("The CRC is wrong", file="x.log", position=9)

    world = CleaningDaemon()
    world.topic(min_cleanable_dirty_ratio="1")
    world.turn()
    world.cleaners.on_chunk = fail
    runs = world.order()
    world.sim.threads.run_until(lambda: bool(runs))
    world.sim.clock.advance_ms(1)
    assert [status.failure is not None for status in world.states.statuses] == [True]


def test_a_dry_run_passes_by_the_pauses_of_operators() -> None:
    world = CleaningDaemon()
    log = world.topic(min_cleanable_dirty_ratio="1")
    for _ in range(2):
        world.sim.manager.cleaning.pause(T0)
    dry, wet = world.order(is_dry=True), world.order()
    world.sim.threads.run_until(lambda: bool(wet))
    assert dry[0].stats is not None
    assert isinstance(wet[0].error, CleaningConflict)
    assert world.cleaners.cleaned == [(T0, 0, log.segments.active.base_offset, True)]
    assert str(world.states.state_of(T0)) == "paused(2)"
    world.states.abort_and_pause_cleaning(T0)
    dry = world.order(is_dry=True)
    world.sim.threads.run_until(lambda: bool(dry))
    assert isinstance(dry[0].error, CleaningConflict)
    assert str(world.states.state_of(T0)) == "paused(3)"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_resumed", [True, False])
def test_who_wants_a_paused_log_ends_its_dry_run(seed: int, is_resumed: bool) -> None:
    world = CleaningDaemon(seed=seed)
    world.topic()
    world.sim.manager.cleaning.pause(T0)
    world.cleaners.on_chunk = lambda _: world.sim.threads.switch_point()
    runs = world.order(is_dry=True)
    world.sim.threads.run_until(lambda: T0 in world.cleaners.at_work)
    assert str(world.states.state_of(T0)) == "in_progress(1)"
    if is_resumed:
        world.sim.manager.cleaning.resume(T0)
        assert str(world.states.state_of(T0)) == "in_progress"
    world.sim.operations.topics.delete("t")
    assert T0 not in world.cleaners.at_work
    assert world.states.state_of(T0) == NONE
    world.turn()
    assert [run.is_aborted for run in runs] == [True]


def test_an_offline_directory_ends_its_cleans_and_marks_nothing() -> None:
    world = CleaningDaemon(topic_defaults=COMPACTED)
    for name in ("t", "u"):
        world.topic(name)
    world.run_into_a_clean()
    log_dir = world.sim.manager.logs.unit_of(world.log()).log_dir
    log_dir.take_offline("a test")
    for _ in range(3):
        world.turn()
    assert {key.topic for key, *_ in world.cleaners.cleaned} == {"u"}
    assert world.states.failures() == {}
    assert world.states.state_of(T0) == NONE


def test_what_a_clean_reads_is_durable_before() -> None:
    world = CleaningDaemon()
    log = world.topic()
    world.sim.produce("t", keyed_batch(("k", "v" * 40)), Acks.LEADER)
    world.sim.manager.logs.unit_of(log).writer.call(log.roll)
    unsynced = log.recovery_point
    seen: list[int] = []
    world.cleaners.on_chunk = lambda _: seen.append(log.recovery_point)
    runs = world.order()
    world.sim.threads.run_until(lambda: bool(runs))
    assert unsynced < there(runs[0].to_clean).first_uncleanable_offset <= min(seen)


KEYS = [TopicPartition("t", number) for number in range(3)]


def run_of(key: TopicPartition) -> CleaningRun:
    return CleaningRun(key, 0, False, 0, 0)


class Order:
    """An order under way: what was submitted, and its ends once they were told."""

    def __init__(
        self, keys: Sequence[TopicPartition], refused: TopicPartition | None = None
    ) -> None:
        self.submitted: dict[TopicPartition, Callable[[CleaningRun], None]] = {}
        self.told: list[list[CleanEnd]] = []
        self._refused = refused
        mutex = SimThreads(SimClock(), 1, lambda *_: None).mutex()
        self.progress = submit_each(
            keys, mutex, self._submit, lambda ends: self.told.append(list(ends))
        )

    def _submit(self, key: TopicPartition, done: Callable[[CleaningRun], None]) -> None:
        if key == self._refused:
            raise CleaningConflict("taken", topic=key.topic, partition=key.partition)
        self.submitted[key] = done

    def end(self, key: TopicPartition) -> None:
        self.submitted[key](run_of(key))


def test_ends_in_the_order_of_the_keys() -> None:
    order = Order(KEYS)
    for done, key in enumerate((KEYS[2], KEYS[0])):
        order.end(key)
        assert order.progress == {"partitions": 3, "partitions_done": done + 1}
        assert order.told == []
    order.end(KEYS[1])
    assert order.told == [[run_of(key) for key in KEYS]]


def test_a_clean_that_is_refused_is_an_end() -> None:
    order = Order(KEYS, refused=KEYS[1])
    order.end(KEYS[0])
    order.end(KEYS[2])
    ((first, second, third),) = order.told
    assert (first, third) == (run_of(KEYS[0]), run_of(KEYS[2]))
    assert isinstance(second, CleaningConflict)


def test_all_refused_and_none_at_all() -> None:
    assert [len(ends) for ends in Order(KEYS[:1], refused=KEYS[0]).told] == [1]
    assert Order([]).told == [[]]
