"""Goal: the metrics of the storage threads say what happened, and cost appends next to nothing.
Method: a whole manager on the twins; the samples of its registry before and after each event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest

from kafkalog.broker.directory.commands import CallCommand
from kafkalog.broker.values import Acks, ConfigChange, MoveState
from kafkalog.errors import OffsetAboveLogEnd, UnknownTopic
from kafkalog.log.values import Isolation
from kafkalog.observe.metrics import Metrics
from kafkalog.observe.prometheus import observe_many
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of

if TYPE_CHECKING:
    from kafkalog.broker.directory.commands import Command
    from kafkalog.log.unified_log import UnifiedLog

HEARTBEAT = "kafkalog_thread_heartbeat_timestamp_seconds"


def value(sim: SimManager, name: str, **labels: str) -> float:
    found = sim.metrics.registry.get_sample_value(name, labels)
    return 0.0 if found is None else found


def test_idle_threads_beat() -> None:
    """M16: an old heartbeat is a thread that hangs, never one without work."""
    sim = SimManager().start()
    sim.threads.run_until_idle()
    names = ["scheduler"]
    names += [f"log-dir-{kind}-{path}" for kind in ("writer", "flusher") for path in DIRS]
    for _ in range(3):
        sim.clock.advance_ms(10_000)
        sim.threads.run_until_idle()
        now = sim.clock.wall_ms() / 1000
        for name in names:
            assert now - value(sim, HEARTBEAT, thread=name) <= 10, name


def test_appends_and_fetches_are_timed() -> None:
    """M16: by outcome, each once."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for acks in (Acks.ALL, Acks.LEADER):
        assert sim.produce("t", batch_of("a"), acks).error is None
    sim.operations.fetch("t", 0, 0, 1000, Isolation.HIGH_WATERMARK, may_block=True)
    with pytest.raises(OffsetAboveLogEnd):
        sim.operations.fetch("t", 0, 9, 1000, Isolation.HIGH_WATERMARK, may_block=True)
    assert value(sim, "kafkalog_append_seconds_count", outcome="ok") == 2
    assert value(sim, "kafkalog_append_seconds_count", outcome="error") == 0
    assert value(sim, "kafkalog_fetch_seconds_count", outcome="ok") == 1
    assert value(sim, "kafkalog_fetch_seconds_count", outcome="error") == 1


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.000501, 0.3, 8.192, 9.0])
def test_observed_together_as_one_by_one(seconds: float) -> None:
    """M16: every bound falls into the bucket that the library would choose."""
    together, single = Metrics(), Metrics()
    observe_many(together.append_seconds.labels("ok"), [seconds, seconds, 0.1])
    for each in (seconds, seconds, 0.1):
        single.append_seconds.labels("ok").observe(each)
    assert generate_latest(together.registry) == generate_latest(single.registry)


def series_of(sim: SimManager, topic: str) -> list[str]:
    """Names of the samples that carry the topic."""
    families = sim.metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return [sample.name for sample in samples if sample.labels.get("topic") == topic]


@pytest.mark.parametrize("seed", range(5))
def test_appends_behind_a_deletion_leave_no_series(seed: int) -> None:
    """A deleted topic costs no sample, also when producers were at work until the end."""
    sim = SimManager(seed=seed).start()
    sim.operations.topics.create("t", 2, {})
    logs = [sim.operations.partition_log("t", number) for number in (0, 1)]
    sim.threads.start("deletes", lambda: sim.operations.topics.delete("t"))
    answered: list[Command] = []

    def append(log: UnifiedLog) -> None:
        records = records_of(batch_of("a"), log)
        sim.operations.submit_produce(log, records, Acks.LEADER, on_done=answered.append)

    for turn in range(30):
        append(logs[turn % 2])
        sim.threads.run_steps(1)
    sim.threads.run_until_idle()
    append(logs[0])
    sim.threads.run_until_idle()
    assert isinstance(answered[-1].error, UnknownTopic)
    assert series_of(sim, "t") == []


def test_what_failed_is_counted_before_anybody_is_told() -> None:
    """Who forgets a topic's counters when its last command has ended forgets them all."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1, {})
    log = sim.operations.partition_log("t", 0)
    seen: list[list[str]] = []
    last = CallCommand(lambda: None)
    last.is_internal, last.on_done = True, lambda _: seen.append(series_of(sim, "t"))
    records = records_of(batch_of("a"), log)
    sim.operations.submit_produce(log, records, Acks.LEADER, expected_offset=7)
    sim.manager.unit_of(log).writer.submit(last)
    sim.threads.run_until_idle()
    assert "kafkalog_append_refusals_total" in seen[0]


def test_directories_are_measured() -> None:
    """M16: partitions, segments, space and loads of each directory."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 3)
    sim.clock.advance_ms(10_000)
    counts = [value(sim, "kafkalog_log_dir_partitions", log_dir=path) for path in DIRS]
    assert sorted(counts) == [1, 2]
    assert counts == [value(sim, "kafkalog_log_dir_segments", log_dir=path) for path in DIRS]
    for path in DIRS:
        assert value(sim, "kafkalog_log_dir_online", log_dir=path) == 1
        assert value(sim, "kafkalog_log_dir_free_bytes", log_dir=path) > 0
        assert value(sim, "kafkalog_recovery_remaining_logs", log_dir=path) == 0


def test_a_fresh_directory_is_no_unclean_start() -> None:
    """M16: a kill is one, a clean stop is none."""
    sim = SimManager().start()
    assert value(sim, "kafkalog_unclean_starts_total", log_dir=DIRS[0]) == 0
    again = SimManager(sim.stop()).start()
    assert value(again, "kafkalog_unclean_starts_total", log_dir=DIRS[0]) == 0
    killed = SimManager(again.kill()).start()
    assert value(killed, "kafkalog_unclean_starts_total", log_dir=DIRS[0]) == 1


def test_moves_are_counted_where_they_go() -> None:
    """M14 M26: bytes and moves under way while they copy, their ends by state.

    Goal: an operator sees a move that crawls, and how many ended badly.
    Method: a throttled move that is cancelled, then one that ends; the samples of the target.
    """
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for _ in range(20):
        assert sim.produce("t", batch_of("v" * 100)).error is None
    target = next(path for path in DIRS if path != sim.operations.partition_log("t", 0).parent_dir)
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"

    def sample(name: str, **labels: str) -> float:
        return value(sim, f"kafkalog_{name}", log_dir=target, **labels)

    sim.operations.alter_broker_configs([ConfigChange(rate, "1")])
    sim.operations.log_dirs.move("t", 0, target)
    sim.clock.advance_ms(1_000)
    copied = sim.operations.log_dirs.moves()[0].copied_bytes
    assert sample("partition_moves_running") == 1
    assert sample("partition_move_bytes_total") == copied > 0
    sim.operations.log_dirs.cancel_move("t", 0)
    assert sample("partition_moves_running") == 0
    assert sample("partition_moves_total", state="cancelled") == 1
    sim.operations.alter_broker_configs([ConfigChange(rate, None)])
    sim.operations.log_dirs.move("t", 0, target)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is MoveState.DONE)
    assert sample("partition_moves_total", state="done") == 1
    assert sample("partition_moves_total", state="cancelled") == 1
    assert sample("partition_moves_running") == 0
