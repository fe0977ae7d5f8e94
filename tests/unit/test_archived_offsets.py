"""Goal: with archive.hold no limit takes what is not archived, until its bound, and all can see it.
Method: a whole manager on the simulated disk and clock; archived offsets are raised as a job does.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import structlog

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.commands import Until
from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.retention.archive_lag import ReadableTimes
from kafkalog.broker.retention.retention import FinishCommand
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.format.topic_names import encode_id
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import Keeper, RetainedByHold, Rule
from tests.backup_world import NEW_DIRS, back_up, new_disk, restore, started as backup_started
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.there import there
from tests.unit.test_retention import TP, bases, fill, names, started

NEVER = 10**12
HELD = {"retention.ms": "1", "archive.hold": "true"}


def filled(segments: int = 4, **configs: str) -> SimManager:
    """A topic with a hold, closed segments of one record each, all of them over their limit."""
    sim = started(check_ms=NEVER)
    extra = {key.replace("_", "."): value for key, value in configs.items()}
    sim.operations.topics.create("t", 1, HELD | extra)
    fill(sim, segments)
    return sim


def raised(sim: SimManager, offset: int) -> int:
    return sim.operations.retention.raise_archived_offsets("t", {0: offset})[0]


def archived(sim: SimManager) -> list[int]:
    """Offset by partition."""
    return [each.archived_offset for each in sim.operations.retention.archived_offsets("t")]


def test_nothing_goes_before_it_is_archived() -> None:
    """M09: nothing, then what lies wholly below the archived offset, then the rest."""
    sim = filled()
    assert sim.manager.retention.run_once() == 0
    assert raised(sim, 2) == 2
    assert sim.manager.retention.run_once() == 2
    assert bases(sim) == [2, 3, 4]
    assert raised(sim, 4) == 4
    assert sim.manager.retention.run_once() == 2
    assert bases(sim) == [4]


def test_without_the_config_nothing_waits() -> None:
    """M09: an archived offset alone holds nothing; setting the config holds at once."""
    sim = started(check_ms=NEVER).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 3)
    raised(sim, 1)
    sim.operations.topics.alter_configs("t", [ConfigChange("archive.hold", "true")])
    assert sim.manager.retention.run_once() == 1
    sim.operations.topics.alter_configs("t", [ConfigChange("archive.hold", None)])
    assert sim.manager.retention.run_once() == 2


def test_a_hold_that_is_set_during_a_pass_counts() -> None:
    """M09: the log start does not move behind the answer of the change that set the hold."""
    sim = started(check_ms=NEVER).with_topic("t", 1, {"retention.ms": "1"})
    fill(sim, 3)
    log = sim.operations.partition_log("t", 0)
    writer, hold_of = sim.manager.logs.unit_of(log).writer, sim.manager.archived_offsets.hold_of
    now_ms = sim.clock.wall_ms()
    planned = sim.manager.retention.plan_of(log)
    base = writer.change(log, lambda: execute.begin(log, planned), Until.FLUSHED)
    sim.operations.topics.alter_configs("t", [ConfigChange("archive.hold", "true")])
    raise_start = partial(execute.raise_start, log, now_ms, base)
    assert (
        writer.change(log, lambda: raise_start(hold_of(log, log.config)), Until.CHECKPOINTED) == ()
    )
    assert writer.run(FinishCommand(log)) == []
    assert bases(sim) == [0, 1, 2, 3]


def test_records_that_a_user_deletes_are_not_held() -> None:
    """M09 M10: delete-records moves the log start, and its segments go."""
    sim = filled()
    assert sim.delete_records("t", 3).error is None
    outcome = sim.operations.retention.retain("t", 0, dry_run=False)
    assert [each.rule for each in outcome.deleted] == [Rule.START_OFFSET] * 3
    assert bases(sim) == [3, 4]
    assert sim.manager.retention.run_once() == 0


def test_a_hold_gives_way_beyond_its_limit() -> None:
    """M09: the oldest go until no more than archive.hold.max.bytes is kept; told and counted."""
    sim = filled()
    size = sim.operations.partition_log("t", 0).segments.first.size_bytes
    limit = ConfigChange("archive.hold.max.bytes", str(2 * size))
    sim.operations.topics.alter_configs("t", [limit])
    with structlog.testing.capture_logs() as logs:
        assert sim.manager.retention.run_once() == 2
    assert bases(sim) == [2, 3, 4]
    (told,) = [each for each in logs if each["event"] == "archive_hold_gave_way"]
    assert (told["log_level"], told["segments"], told["bytes"]) == ("warning", 2, 2 * size)
    assert (told["archived_offset"], told["log_start_offset"]) == (0, 2)
    assert sim.metrics.archive_yielded_segments.labels("t")._value.get() == 2
    assert sim.metrics.archive_yielded_bytes.labels("t")._value.get() == 2 * size
    assert sim.manager.retention.held_of(TP) == RetainedByHold(2, 2 * size)
    assert sim.manager.retention.run_once() == 0


def test_everybody_sees_what_is_held() -> None:
    """M28: fates, the hold beside them, a dry run, a simulation, the metrics."""
    sim = filled()
    raised(sim, 1)
    report = sim.operations.retention.describe("t", 0)
    size = report.segments[1].facts.size_bytes
    hold = there(report.facts.hold)
    assert (hold.offset, hold.max_bytes) == (1, -1)
    assert report.held == RetainedByHold(3, 3 * size)
    assert [each.rule for each in report.fates] == [Rule.TIME, None, None, None, None]
    keepers = [each.keeper for each in report.fates]
    assert keepers == [None, *[Keeper.HOLD] * 3, Keeper.OLDER_SEGMENT]
    assert [each.due for each in report.fates[1:]] == [None] * 4
    preview = sim.operations.retention.retain("t", 0, dry_run=True)
    assert [each.base_offset for each in preview.deleted] == [0]

    def simulated(configs: dict[str, str]) -> list[int]:
        found = sim.operations.retention.simulate("t", 0, configs, start_ms=None, horizon_ms=NEVER)
        return [each.facts.base_offset for each in found.departures]

    assert simulated({}) == [0]
    assert simulated({"archive.hold": "false"}) == [0, 1, 2, 3]
    assert simulated({"archive.hold.max.bytes": str(size)}) == [0, 1, 2]
    sim.manager.retention.run_once()
    (told,) = sim.operations.retention.archived_offsets("t")
    assert (told.archived_offset, told.lag, told.held) == (1, 3, RetainedByHold(3, 3 * size))
    (sample,) = sim.operations.metrics_snapshot().samples()
    assert (sample.archive_lag, sample.archive_held_segments) == (3, 3)
    assert sample.archive_held_bytes == 3 * size


def test_how_far_the_archive_is_behind() -> None:
    """In offsets, bytes and seconds, by partition, in the metrics and in the report.

    One record a minute: the task of the metrics looks every ten seconds.
    """
    sim = filled(segments=4)
    size = sim.operations.partition_log("t", 0).segments.first.size_bytes
    sim.clock.advance_ms(30_000)

    def seen() -> tuple[object, ...]:
        (sample,) = sim.operations.metrics_snapshot().samples()
        (told,) = sim.operations.retention.archived_offsets("t")
        assert (told.lag, told.lag_bytes, told.lag_seconds) == (
            sample.archive_lag,
            sample.archive_lag_bytes,
            sample.archive_lag_s,
        )
        return told.lag, told.lag_bytes, told.lag_seconds

    assert seen() == (4, 4 * size, 270.0)
    raised(sim, 3)
    assert seen() == (1, size, 90.0)
    raised(sim, 4)
    assert seen() == (0, 0, 0.0)
    sim.clock.advance_ms(100_000)
    assert seen() == (0, 0, 0.0)
    fill(sim, 1)
    sim.clock.advance_ms(20_000)
    assert seen() == (1, size, 80.0)
    assert sim.operations.retention.archived_offsets("t")[0].recovery_point <= 5


def test_without_a_hold_there_is_no_lag_in_the_metrics() -> None:
    sim = started(check_ms=NEVER).with_topic("t", 1)
    fill(sim, 1)
    (sample,) = sim.operations.metrics_snapshot().samples()
    assert (sample.archive_lag, sample.archive_lag_bytes, sample.archive_lag_s) == (None,) * 3
    (told,) = sim.operations.retention.archived_offsets("t")
    assert (told.lag, told.lag_seconds) == (1, None)


@pytest.mark.parametrize("seed", range(5))
def test_the_age_of_what_is_not_archived_is_never_too_small(seed: int) -> None:
    """Compared with a list of when each offset came; at most an eighth and a look too high."""
    chance, times, came = random.Random(seed), ReadableTimes(), list[int]()
    archived = 0
    times.note(0, 0, 0)
    for look in range(1, 2_000):
        now_ns = look * 10_000_000_000
        came += [now_ns - chance.randrange(10_000_000_000)] * chance.randrange(3)
        if chance.random() < 0.01:
            archived = chance.randrange(archived, len(came) + 1)
        times.note(now_ns, archived, len(came))
        seconds = times.seconds(now_ns, archived, len(came))
        if archived == len(came):
            assert seconds == 0
            continue
        exact = (now_ns - came[archived]) / 1e9
        assert exact <= there(seconds) <= exact + look * 10 / 8 + 20


def test_an_archived_offset_only_rises() -> None:
    """All or none, never above what readers see, never lower; others' partitions are refused."""
    sim = started(check_ms=NEVER).with_topic("t", 2, HELD)
    fill(sim, 3)
    assert raised(sim, 2) == 2
    assert raised(sim, 1) == 2
    with pytest.raises(errors.OffsetAboveHighWatermark):
        raised(sim, 4)
    with pytest.raises(errors.OffsetAboveHighWatermark):
        sim.operations.retention.raise_archived_offsets("t", {0: 3, 1: 1})
    with pytest.raises(errors.UnknownPartition):
        sim.operations.retention.raise_archived_offsets("t", {0: 3, 2: 0})
    with pytest.raises(errors.UnknownTopic):
        sim.operations.retention.raise_archived_offsets("u", {0: 3})
    with pytest.raises(errors.InvalidTopicName):
        sim.operations.retention.raise_archived_offsets("__consumer_offsets", {0: 0})
    assert archived(sim) == [2, 0]


def test_another_topic_of_the_name_hears_nothing() -> None:
    sim = filled(3)
    topic_id = encode_id(sim.manager.logs.registered("t").topic_id)
    assert sim.operations.retention.raise_archived_offsets("t", {0: 1}, topic_id) == {0: 1}
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1, HELD)
    fill(sim, 3)
    with pytest.raises(errors.UnknownTopic, match=topic_id):
        sim.operations.retention.raise_archived_offsets("t", {0: 2}, topic_id)
    assert archived(sim) == [0]


def test_it_is_kept_with_the_topic() -> None:
    """M14: over a restart, a change of configs and more partitions; not by a topic made anew."""
    sim = filled()
    raised(sim, 2)
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.ms", "2")])
    sim.operations.topics.create_partitions("t", 3)
    again = SimManager(sim.stop(), config=sim.config).start()
    assert archived(again) == [2, 0, 0]
    killed = SimManager(again.kill(), config=sim.config).start()
    assert archived(killed) == [2, 0, 0]
    killed.operations.topics.delete("t")
    killed.operations.topics.create("t", 1, HELD)
    assert archived(killed) == [0]


def test_it_goes_with_a_move_a_backup_and_a_restore() -> None:
    """M14: the hold of a partition in another directory, and of one that was restored."""
    disk = new_disk()
    sim = backup_started(disk).with_topic("t", 1, HELD)
    for _ in range(3):
        assert sim.produce("t", batch_of("a")).error is None
    raised(sim, 2)
    home = sim.operations.partition_log("t", 0).parent_dir
    (target,) = (path for path in DIRS if path != home)
    sim.operations.log_dirs.move("t", 0, target)
    sim.threads.run_until(lambda: not sim.manager.logs.table.futures())
    moved = sim.operations.partition_log("t", 0)
    assert moved.directory.startswith(target)
    assert there(sim.manager.archived_offsets.hold_of(moved, moved.config)).offset == 2
    assert back_up(sim).error is None
    raised(sim, 3)
    disk = sim.stop()
    restore(disk, NEW_DIRS)
    again = backup_started(disk, NEW_DIRS)
    assert archived(again) == [2]


def test_what_is_archived_is_durable() -> None:
    """M13: records of acks=1 survive a power cut once their offset was raised."""
    sim = started(check_ms=NEVER).with_topic("t", 1, HELD)
    assert sim.produce("t", batch_of("a", "b"), Acks.LEADER).error is None
    log = sim.operations.partition_log("t", 0)
    assert (log.high_watermark, log.recovery_point) == (2, 0)
    assert raised(sim, 2) == 2
    assert log.recovery_point == 2


def test_a_log_that_lost_its_end_lowers_the_archived_offset() -> None:
    """M14: what comes at these offsets next is in no archive: it is held, and told once."""
    sim = filled(3)
    raised(sim, 3)
    directory = sim.operations.partition_log("t", 0).directory
    disk = sim.kill()
    for base in (2, 3):
        for kind in (".log", ".index", ".timeindex", ".snapshot"):
            if disk.exists(f"{directory}/{base:020}{kind}"):
                disk.unlink(f"{directory}/{base:020}{kind}")
    with structlog.testing.capture_logs() as logs:
        again = SimManager(disk, config=sim.config).start()
    log = again.operations.partition_log("t", 0)
    told = [each for each in logs if each["event"] == "archive_ahead_of_log"]
    assert [(each["archived_offset"], each["log_end_offset"]) for each in told] == [(3, 2)]
    assert log.log_end_offset == 2
    assert archived(again) == [2]
    third = SimManager(again.stop(), config=sim.config).start()
    assert archived(third) == [2]


def test_a_registry_that_cannot_be_written_changes_nothing() -> None:
    """M14: DiskFull: the offsets of before are in force, also after a restart."""
    sim = filled()
    raised(sim, 1)
    sim.disk.faults.add(Fault.no_space(REGISTRY_FILE))
    with pytest.raises(errors.DiskFull):
        raised(sim, 3)
    assert archived(sim) == [1]
    sim.disk.faults.clear()
    assert raised(sim, 3) == 3


@pytest.mark.parametrize("gives_way", [False, True])
def test_a_full_disk_ends_a_hold_only_if_the_broker_says_so(gives_way: bool) -> None:
    """M09: appends are refused; held segments go by their limits, or they stay."""
    config = BrokerConfig(
        log_dirs=DIRS[:1],
        log_retention_check_interval_ms=NEVER,
        archive_hold_gives_way_when_full=gives_way,
    )
    sim = SimManager(config=config).start().with_topic("t", 1, HELD)
    fill(sim, 3)
    assert sim.manager.retention.run_once() == 0
    (unit,) = sim.manager.logs.units
    unit.log_dir.free_space.note_full("full")
    assert sim.manager.retention.run_once() == (3 if gives_way else 0)
    assert len(names(sim, ".log")) == (1 if gives_way else 4)
