"""Goal: what has to be looked up for the metrics page is there, and the look costs nobody anything.
Method: a whole manager on the twins; samples after each look; faults, cold files and slow rates.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from tests.sim.sim_faults import Fault
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.observe.partition_metrics import PartitionSample

READS_MS = 30_000  # log.initial.task.delay.ms: nothing is read before
READ = frozenset({"read"})
SMALL = {"internal.segment.bytes": "100", "retention.bytes": "150", "retention.ms": "-1"}


def value(sim: SimManager, name: str, **labels: str) -> float:
    found = sim.metrics.registry.get_sample_value(name, labels)
    return 0.0 if found is None else found


def sample_of(sim: SimManager, topic: str, partition: int = 0) -> PartitionSample:
    """What a scrape would show of a partition."""
    return next(
        each
        for each in sim.operations.metrics_snapshot().samples()
        if (each.topic, each.partition) == (topic, partition)
    )


def deletable(sim: SimManager, topic: str) -> Mapping[str, int]:
    """What retention would delete of a topic now, by rule."""
    return {
        each.reason: each.size_bytes
        for each in sim.operations.metrics_snapshot().deletable
        if each.topic == topic
    }


def make_segments(sim: SimManager, topic: str, count: int, value_bytes: int = 20) -> None:
    """A topic with one partition and that many segments; nothing of it is ever too old."""
    small = {"internal.segment.bytes": f"{value_bytes + 80}", "retention.ms": "-1"}
    sim.operations.topics.create(topic, 1, small)
    for _ in range(count):
        assert sim.produce(topic, batch_of("v" * value_bytes)).error is None


def test_logs_are_measured() -> None:
    """M26: records, timestamps, reserved and waiting bytes, at the next look."""
    sim = SimManager().start().with_topic("t", 1, {"segment.index.bytes": "1000"})
    assert sim.produce("t", batch_of("a", "b", "c")).error is None
    assert sample_of(sim, "t").records is None
    sim.clock.advance_ms(READS_MS)
    sample = sample_of(sim, "t")
    assert sample.records == 3
    assert sample.oldest_s == sample.newest_s == 1_700_000_000
    sim.delete_records("t", 2)
    assert sim.produce("t", batch_of("d")).error is None
    sim.clock.advance_ms(10_000)
    assert sample_of(sim, "t").records == 2
    home = sim.operations.partition_log("t", 0).parent_dir
    # 125 entries of 8 bytes and 83 of 12; nothing is indexed yet
    assert value(sim, "kafkalog_log_reserved_index_bytes", log_dir=home) == 1000 + 996
    size = sim.operations.partition_log("t", 0).size_bytes
    sim.operations.topics.delete("t")
    assert list(sim.operations.metrics_snapshot().samples()) == []
    sim.clock.advance_ms(10_000)
    assert value(sim, "kafkalog_log_awaiting_delete_bytes", log_dir=home) == size
    sim.clock.advance_ms(60_000)
    assert value(sim, "kafkalog_log_awaiting_delete_bytes", log_dir=home) == 0


def test_deleted_records_do_not_wait_for_the_next_walk() -> None:
    """M26: a number that the offsets refute is not shown."""
    sim = SimManager().start().with_topic("t", 1)
    assert sim.produce("t", batch_of("a", "b", "c")).error is None
    sim.clock.advance_ms(READS_MS)
    for start, left in ((2, 1), (3, 0)):
        sim.delete_records("t", start)
        assert sample_of(sim, "t").records == left
        assert sim.operations.logs.describe("t", 0).records == left
    sim.clock.advance_ms(10_000)
    assert sim.produce("t", batch_of("d")).error is None
    assert sample_of(sim, "t").records == 0
    sim.clock.advance_ms(10_000)
    assert sample_of(sim, "t").records == 1


def test_what_retention_would_delete_is_told() -> None:
    """M26: 0 while policy and disk agree, by rule what it is late with."""
    sim = SimManager().start().with_topic("t", 1, SMALL)
    for _ in range(5):
        assert sim.produce("t", batch_of("v" * 20)).error is None
    log = sim.operations.partition_log("t", 0)
    sim.manager.cleaning.states.abort_and_pause_cleaning(log.topic_partition)
    sim.clock.advance_ms(10_000)
    late = deletable(sim, "t")
    assert late.keys() == {"start_offset", "size"}
    assert late["start_offset"] == 0
    assert log.size_bytes - 150 - 100 < late["size"] <= log.size_bytes - 150
    sim.manager.cleaning.states.resume_cleaning([log.topic_partition])
    sim.manager.retention.run_once()
    sim.clock.advance_ms(10_000)
    assert deletable(sim, "t") == {"start_offset": 0, "size": 0}
    sim.operations.topics.delete("t")
    assert deletable(sim, "t") == {}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["known", "cold"])
def test_an_offline_directory_has_nothing_to_delete(*, is_restarted: bool) -> None:
    """M26: what a lost directory holds neither counts as late nor hides what is."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 2, SMALL)
    for _ in range(5):
        for partition in range(2):
            assert sim.produce("t", batch_of("v" * 20), partition=partition).error is None
    if is_restarted:
        sim = SimManager(sim.stop()).start()
    lost, served = (sim.operations.partition_log("t", partition) for partition in range(2))
    assert lost.parent_dir != served.parent_dir
    sim.manager.cleaning.states.abort_and_pause_cleaning(served.topic_partition)
    sim.manager.logs.unit_of(lost).log_dir.take_offline("EIO")
    sim.clock.advance_ms(2 * READS_MS)
    late = deletable(sim, "t")
    assert served.size_bytes - 150 - 100 < late["size"] <= served.size_bytes - 150
    sim.manager.cleaning.states.resume_cleaning([served.topic_partition])
    sim.manager.retention.run_once()
    sim.clock.advance_ms(10_000)
    assert deletable(sim, "t") == {"start_offset": 0, "size": 0}


def test_what_a_hold_keeps_is_renewed_between_checks() -> None:
    """M26: an archive that stands still shows within seconds, and so does one that caught up."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1, SMALL | {"archive.hold": "true"})
    sim.clock.advance_ms(READS_MS)
    for _ in range(6):
        assert sim.produce("t", batch_of("v" * 20)).error is None
    sim.clock.advance_ms(20_000)
    assert sample_of(sim, "t").archive_held_segments == 4
    sim.operations.retention.raise_archived_offsets("t", {0: 6})
    sim.clock.advance_ms(20_000)
    assert sample_of(sim, "t").archive_held_segments == 0


def test_a_read_for_a_number_costs_no_directory() -> None:
    """M26: the number is absent, the rest of the log is served: nobody asked for these bytes."""
    disk = SimFilesystem()
    sim = SimManager(disk).start().with_topic("t", 1)
    assert sim.produce("t", batch_of("a")).error is None
    disk.faults.add(Fault(error=errno.EIO, kinds=READ, times=1_000))
    sim.clock.advance_ms(READS_MS)
    assert sample_of(sim, "t").records is None
    assert all(unit.log_dir.is_online for unit in sim.manager.logs.units)
    disk.faults.disarm()
    sim.clock.advance_ms(10_000)
    assert sample_of(sim, "t").records == 1


def test_a_moment_that_is_not_there_is_asked_for_once() -> None:
    """M26: a first batch without a moment is not inflated again in each turn of a walk."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1, {"message.timestamp.before.max.ms": str(2**63 - 1)})
    assert sim.produce("t", build_batch(RecordColumns.of([None], ["a"], -1))).error is None
    sim.clock.advance_ms(READS_MS)
    assert sample_of(sim, "t").records == 1
    assert sim.produce("t", batch_of("b")).error is None
    reads = sim.disk.faults.add(Fault(kinds=READ, times=0))  # strikes nothing
    sim.clock.advance_ms(10_000)
    sample = sample_of(sim, "t")
    assert (sample.records, sample.oldest_s, sample.newest_s) == (2, None, 1_700_000_000)
    assert reads.seen == 1


def test_a_large_log_holds_up_no_small_one() -> None:
    """M26: a walk of hours goes on behind what is quickly done, and keeps to its rate."""
    config = BrokerConfig(log_dirs=DIRS, metrics_records_max_bytes_per_second=200_000)
    sim = SimManager(config=config).start().with_topic("large", 1, {"segment.bytes": "1048576"})
    for _ in range(9):
        assert sim.produce("large", batch_of("v" * 900_000)).error is None
    sim.operations.topics.create("small", 1)
    assert sim.produce("small", batch_of("a")).error is None
    seen = []
    sim.clock.advance_ms(READS_MS - 10_000)
    for _ in range(6):
        sim.clock.advance_ms(10_000)
        assert sample_of(sim, "small").records == 1
        seen.append(sample_of(sim, "large").records)
    assert seen[0] is None
    assert seen[-1] == 9


def test_busy_logs_do_not_keep_a_large_one_from_its_number() -> None:
    """M26: with more appended than the rate there is always one that has less left."""
    config = BrokerConfig(log_dirs=DIRS, metrics_records_max_bytes_per_second=200_000)
    sim = SimManager(config=config).start()
    for topic in ("large", "busy"):
        sim.operations.topics.create(topic, 1, {"segment.bytes": "10485760"})
    assert sim.produce("busy", batch_of("a")).error is None
    sim.clock.advance_ms(READS_MS)
    assert sample_of(sim, "busy").records == 1
    for _ in range(3):
        assert sim.produce("large", batch_of("v" * 900_000)).error is None
    for _ in range(30):
        for _ in range(3):
            assert sim.produce("busy", batch_of("v" * 800_000)).error is None
        sim.clock.advance_ms(10_000)
        assert sample_of(sim, "busy").records is not None
    assert sample_of(sim, "large").records == 3


@pytest.mark.parametrize(
    ("holder", "surveys"), [("fails", 9), ("is offline", 9), ("never ends", 19)]
)
def test_nobody_keeps_the_share_of_who_waits_longest(holder: str, surveys: int) -> None:
    """M26: a log that began to wait early keeps no other from its number for ever."""
    config = BrokerConfig(log_dirs=DIRS, metrics_records_max_bytes_per_second=20_000)
    sim = SimManager(config=config).start()
    large_segments = {"segment.bytes": "10485760"}
    sim.operations.topics.create("first", 1, large_segments)
    assert sim.produce("first", batch_of("v" * 80_000)).error is None
    if holder == "fails":
        sim.disk.faults.add(Fault(kinds=READ, path_contains="/first-0/", times=1_000_000))
    sim.clock.advance_ms(10_000)
    if holder == "is offline":
        first = sim.operations.partition_log("first", 0)
        sim.manager.logs.unit_of(first).log_dir.take_offline("EIO")
    for topic in ("busy", "large"):
        sim.operations.topics.create(topic, 1, large_segments)
    for _ in range(50):
        assert sim.produce("large", batch_of("v" * 80_000)).error is None
    busy = "first" if holder == "never ends" else "busy"
    for _ in range(surveys):
        for _ in range(3):
            assert sim.produce(busy, batch_of("v" * 80_000)).error is None
        sim.clock.advance_ms(10_000)
    assert walked_bytes(sim, busy) > 0
    assert 0 < walked_bytes(sim, "large") <= 3 * 81_000, "one share"


def walked_bytes(sim: SimManager, topic: str) -> int:
    """How far the walk of a topic's only partition has come."""
    known = sim.manager.log_stats.find(sim.operations.partition_log(topic, 0))
    return 0 if known is None else known.count.walked_bytes


def test_the_walk_takes_its_share_evenly() -> None:
    """M26: a disk that serves appends and fetches never belongs to the metrics for seconds."""
    rate = 1_000_000
    config = BrokerConfig(log_dirs=DIRS, metrics_records_max_bytes_per_second=rate)
    disk = SimFilesystem()
    sim = SimManager(disk, config=config).start().with_topic("t", 1, {"segment.bytes": "100000000"})
    for _ in range(300):
        assert sim.produce("t", batch_of("v" * 40_000)).error is None
    log = sim.operations.partition_log("t", 0)
    reads = disk.faults.add(Fault(kinds=READ, times=0))  # strikes nothing
    sim.clock.advance_ms(READS_MS - 1)
    assert reads.seen == 0
    walk_evenly(sim, log, rate)
    assert sample_of(sim, "t").records == 300
    sim.delete_records("t", 299)
    sim.clock.advance_ms(10_000)
    walk_evenly(sim, log, rate)
    assert sample_of(sim, "t").records == 1


def walk_evenly(sim: SimManager, log: UnifiedLog, rate: int) -> None:
    """Until the walk is over: how far it has come, ten times a second."""
    known = sim.manager.log_stats.find(log)
    walked = [0 if known is None else known.count.walked_bytes]
    while walked[-1] < log.size_bytes:
        sim.clock.advance_ms(100)
        known = sim.manager.log_stats.find(log)
        assert known is not None
        walked.append(known.count.walked_bytes)
    assert len(walked) > 10, "a second and more"
    for early, late in zip(walked, walked[10:], strict=False):
        assert late - early <= rate * 1.2, "a turn more may lie at the edge"
    assert len(walked) / 10 < 1.5 * log.size_bytes / rate, "nor is it slower for no reason"


def test_a_walk_leaves_the_page_cache_and_the_handles_alone() -> None:
    """M26: readers of the tail keep their pages, and the bounded descriptors stay theirs."""
    sim = SimManager().start()
    make_segments(sim, "t", 5)
    disk = sim.stop()
    again = SimManager(disk).start()
    log = again.operations.partition_log("t", 0)
    paths = [segment.log_file.path for segment in log.segments.values[:-1]]
    for path in paths:
        disk.evict(path)
    handles = disk.open_handles
    again.clock.advance_ms(READS_MS)
    again.clock.advance_ms(1_000)
    assert sample_of(again, "t").records == 5
    assert disk.open_handles - handles <= len(log.segments), "a time index each, no log"
    for path in paths:
        assert disk.open_read(path).try_pread_into(bytearray(1), 0) is None


def test_an_index_that_cannot_be_read_costs_no_directory() -> None:
    """M26: however many indexes are still to be read, none is read for a metric under the guard."""
    sim = SimManager().start()
    make_segments(sim, "many", 40)
    make_segments(sim, "bad", 3, 50_000)
    disk = sim.stop()
    again = SimManager(disk).start()
    again.scheduler.shutdown()
    (name,) = (path for path in DIRS if disk.exists(f"{path}/bad-0"))
    bad = Fault(kinds=READ, path_contains=f"{name}/bad-0/{0:020}.timeindex", times=1_000)
    disk.faults.add(bad)
    for _ in range(60):
        again.clock.advance_ms(1_000)
        again.manager.log_stats.run_once()
    assert bad.seen > 0
    assert all(unit.log_dir.is_online for unit in again.manager.logs.units)
    assert deletable(again, "bad") == {}
    assert deletable(again, "many") == {"start_offset": 0}


def test_each_fault_of_a_log_is_told_once() -> None:
    """M26: a fault that passes and comes again is another one."""
    disk = SimFilesystem()
    sim = SimManager(disk).start().with_topic("t", 1)
    with capture_logs() as lines:
        for _ in range(2):
            assert sim.produce("t", batch_of("a")).error is None
            disk.faults.add(Fault(kinds=READ, times=1_000))
            sim.clock.advance_ms(READS_MS + 30_000)
            disk.faults.disarm()
            sim.clock.advance_ms(20_000)
        assert sim.produce("t", batch_of("a")).error is None
        disk.faults.add(Fault(kinds=READ, times=1_000))
        sim.operations.topics.delete("t")
        sim.clock.advance_ms(20_000)
    assert [line["event"] for line in lines].count("log_not_measured") == 2


def test_without_a_rate_timestamps_are_known_and_records_are_not() -> None:
    """M26: ``metrics.records.max.bytes.per.second=0`` turns the walk off and nothing else."""
    config = BrokerConfig(log_dirs=DIRS, metrics_records_max_bytes_per_second=0)
    sim = SimManager(config=config).start().with_topic("t", 1)
    assert sim.produce("t", batch_of("a")).error is None
    sim.clock.advance_ms(READS_MS)
    sample = sample_of(sim, "t")
    assert (sample.records, sample.oldest_s) == (None, 1_700_000_000)
