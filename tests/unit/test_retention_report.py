"""Goal: what people are told about retention is what the next checks do, to the millisecond.
Method: a whole manager on the simulated disk and clock is asked, then time is let pass.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.retention.retention import RETENTION_TASK, Taken
from kafkalog.errors import InvalidTopicConfig, InvalidTopicName, KafkalogError, UnknownPartition
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import Schedule, explain
from kafkalog.log.retention.plan import Hold, Keeper, Rule
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import SimManager
from tests.unit.test_retention import MINUTE, bases, fill, names, put, started

if TYPE_CHECKING:
    from kafkalog.broker.retention.report import RetentionOutcome, SegmentReport


NEVER = 10**12
DAY = 86_400_000


def described(sim: SimManager, topic: str = "t") -> SegmentReport:
    return sim.operations.describe_segments(topic, 0)


def test_explain_is_the_planner_on_the_same_facts() -> None:
    """M28: the fates are those of the pure function; the next check is the real task's."""
    sim = started()
    configs = {"retention.ms": "600000", "retention.bytes": "200", "file.delete.delay.ms": "7000"}
    sim.operations.topics.create("t", 1, {**configs, "archive.hold": "true"})
    fill(sim, 4)
    sim.operations.raise_archived_offsets("t", {0: 3})
    sim.clock.advance_ms(1234)
    report, log = described(sim), sim.operations.partition_log("t", 0)
    (task,) = [each for each in sim.scheduler.tasks() if each.name == RETENTION_TASK]
    now_ms = sim.clock.wall_ms()
    schedule = Schedule(task.next_run_ms, 5 * MINUTE, 7000)
    assert (report.now_ms, report.schedule) == (now_ms, schedule)
    facts = execute.facts_of(log, Hold(3))
    facts = facts._replace(segments=tuple(facts.segments))
    assert report.facts == facts
    policy = execute.policy_of(log.config)
    assert report.fates == explain(facts, policy, now_ms, schedule)
    assert report.fates[0].rule is Rule.SIZE
    assert [each.next_offset for each in report.segments] == [1, 2, 3, 4, 4]
    assert [each.is_active for each in report.segments] == [False] * 4 + [True]
    assert [each.has_record_timestamp for each in report.segments] == [True] * 4 + [False]
    entries = sim.operations.count_index_entries("t", 0, report.segments)
    assert [each.time_index_entries for each in entries] == [1] * 4 + [0]
    assert [each.time_index_bytes for each in entries] == [12] * 4 + [0]
    assert [each.facts for each in report.segments] == list(facts.segments)


def test_a_segment_goes_when_it_was_said_to_go() -> None:
    """M28 M12: not a millisecond before the expected check; its files when they were said to go."""
    sim = started()
    sim.operations.topics.create(
        "t", 1, {"retention.ms": "3600000", "file.delete.delay.ms": "7000"}
    )
    fill(sim, 3, age_ms=10 * MINUTE)
    sim.clock.advance_ms(777)
    for _ in range(3):
        report = described(sim)
        assert report.fates[0].keeper is Keeper.LIMITS
        due, base = report.fates[0].due, report.segments[0].facts.base_offset
        assert due is not None
        assert due.expected_ms is not None
        assert due.moment_ms <= due.expected_ms <= due.latest_ms < due.moment_ms + 5 * MINUTE
        sim.clock.advance_ms(due.expected_ms - 1 - sim.clock.wall_ms())
        assert bases(sim)[0] == base
        sim.clock.advance_ms(1)
        assert bases(sim)[0] == base + 1
        (gone,) = described(sim).deleting
        assert (gone.base_offset, gone.files_gone_ms) == (base, due.expected_ms + 7000)
        assert gone.files_gone_ms <= due.files_gone_ms == due.latest_ms + 7000
        assert gone.size_bytes == report.segments[0].facts.size_bytes
        sim.clock.advance_ms(gone.files_gone_ms - 1 - sim.clock.wall_ms())
        assert names(sim, ".log.deleted") != []
        sim.clock.advance_ms(1)
        assert (names(sim, ".deleted"), described(sim).deleting) == ([], [])
    assert described(sim).fates[0].keeper is Keeper.EMPTY_ACTIVE


def test_checks_that_last_come_later_than_expected_and_not_too_late() -> None:
    """M28: the period begins at a check's end: ``latest`` allows for that, but for one check."""
    lasts_ms = 40_000
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "7200000"})
    fill(sim, 12, age_ms=7 * MINUTE)
    said = {each.facts.base_offset: each.due for each in described(sim).fates}
    went: dict[int, int] = {}
    task = sim.manager.retention.run_once

    def slow() -> int:
        now_ms, before = sim.clock.wall_ms(), bases(sim)
        count = task()
        went.update((base, now_ms) for base in before if base not in bases(sim))
        sim.clock.advance_ms(lasts_ms)
        return count

    sim.manager.retention.run_once = slow  # type: ignore[method-assign] # as long as a big one
    sim.clock.advance_ms(6 * 3_600_000)
    assert sorted(went) == list(range(12))
    late = 0
    for base, moment_ms in went.items():
        due = said[base]
        assert due is not None
        assert due.expected_ms is not None
        assert due.moment_ms <= moment_ms <= due.latest_ms + lasts_ms
        late += moment_ms > due.expected_ms
    assert late > 0


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "600000"},
        {"retention.bytes": "200"},
        {"retention.bytes": "200", "retention.ms": "150000"},
        {"retention.bytes": "0", "retention.ms": "-1"},
    ],
    ids=str,
)
def test_the_dry_run_is_what_the_run_deletes(configs: dict[str, str]) -> None:
    """M28 M08 M09: segments, bytes, rules and the log start, also with a delete-records before."""
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 1, configs)
    fill(sim, 5)
    put(sim)
    assert sim.delete_records("t", 2).error is None
    told = sim.operations.retain("t", 0, dry_run=True)
    before = {each.base_offset: each.size_bytes for each in sim.manager.table.logs()[0].segments}
    assert sorted(before) == bases(sim)
    assert sim.operations.retain("t", 0, dry_run=False) == told
    assert told.deleted
    for each in told.deleted:
        assert before.pop(each.base_offset) == each.size_bytes
    left = bases(sim)
    assert left == (sorted(before) or [6])
    assert left[0] <= told.log_start_offset
    assert sim.operations.retain("t", 0, dry_run=False).deleted == ()


def outcomes(sim: SimManager, *, dry_run: bool) -> dict[str, RetentionOutcome | KafkalogError]:
    return {str(key): what for key, what in sim.operations.retain_all(dry_run=dry_run)}


def test_a_run_over_all_is_the_task_s_pass() -> None:
    """M28 M13: the dry run over all is what the run deletes; compacted logs are left alone."""
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 2, {"retention.ms": "1"})
    sim.operations.topics.create("c", 1, {"cleanup.policy": "compact,delete", "retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("c", 0)
    sim.manager.unit_of(log).writer.call(log.roll)
    told = outcomes(sim, dry_run=True)
    assert sorted(told) == ["t-0", "t-1"]
    assert outcomes(sim, dry_run=False) == told
    assert bases(sim) == [2]
    assert sim.manager.retention.run_once() == 0


def test_a_directory_that_fails_is_its_partitions_entry() -> None:
    """M28 M15: the others are done."""
    sim = started(check_ms=NEVER)
    for topic in ("t", "u"):
        sim.operations.topics.create(topic, 1, {"retention.ms": "1"})
        fill(sim, 2, topic=topic)
    sim.disk.faults.add(Fault(error=errno.EIO, kinds=frozenset({"rename"}), path_contains="/t-0/"))
    got = outcomes(sim, dry_run=False)
    assert isinstance(got["t-0"], KafkalogError)
    assert bases(sim, "u") == [2]


def test_the_simulation_comes_true() -> None:
    """M28: what simulate says for a day is what goes, when, and in which order."""
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "7200000"})
    fill(sim, 12, age_ms=7 * MINUTE)
    simulation = sim.operations.simulate_retention("t", 0, {}, start_ms=None, horizon_ms=DAY)
    said = [(each.due.expected_ms, each.facts.base_offset) for each in simulation.departures]
    assert len(said) == 12
    seen = []
    left = bases(sim)
    for moment_ms, _ in said:
        assert moment_ms is not None
        sim.clock.advance_ms(moment_ms - sim.clock.wall_ms())
        while left[0] != bases(sim)[0]:
            seen.append((moment_ms, left.pop(0)))
    assert seen == said
    log = sim.operations.partition_log("t", 0)
    assert (simulation.segments_left, simulation.bytes_left) == (len(log.segments), log.size_bytes)


def test_what_if() -> None:
    """M28: other configs, another start, a short horizon, compaction; nothing is changed."""
    sim = started()
    sim.operations.topics.create("t", 1, {"retention.ms": "-1"})
    fill(sim, 4)
    now_ms = sim.clock.wall_ms()

    def what_if(start_ms: int | None = None, horizon_ms: int = DAY, **configs: str) -> list[int]:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        simulation = sim.operations.simulate_retention(
            "t", 0, named, start_ms=start_ms, horizon_ms=horizon_ms
        )
        assert simulation.start_ms == (now_ms if start_ms is None else start_ms)
        return [each.facts.base_offset for each in simulation.departures]

    assert what_if() == []
    assert what_if(retention_bytes="0") == [0, 1, 2, 3]
    assert what_if(retention_ms="86400000") == []
    assert what_if(now_ms + DAY, retention_ms="86400000") == [0, 1, 2, 3]
    assert what_if(now_ms, 0, retention_bytes="0") == []  # no check before the next one
    assert what_if(retention_ms="1", cleanup_policy="compact,delete") == [0, 1, 2, 3]  # cleaner's
    assert what_if(retention_ms="1", cleanup_policy="compact") == []
    with pytest.raises(InvalidTopicConfig):
        what_if(retention_ms="soon")
    with pytest.raises(UnknownPartition):
        sim.operations.simulate_retention("t", 1, {}, start_ms=None, horizon_ms=1)
    assert bases(sim) == [0, 1, 2, 3, 4]


def test_nobody_looks_at_a_compacted_log_while_the_cleaner_is_off() -> None:
    """M28 M16: it has no schedule and no moment, but the rule that a pass would go by."""
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 1, {"retention.ms": "1"})
    fill(sim, 2)
    log = sim.operations.partition_log("t", 0)
    log.update_config(LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1))
    schedule = described(sim).schedule
    assert schedule is not None
    assert schedule.is_cleaners
    sim.manager.cleaning.shutdown()
    report = described(sim)
    assert report.schedule is None
    assert [each.due for each in report.fates] == [None] * 3
    assert [each.rule for each in report.fates] == [Rule.TIME, Rule.TIME, None]
    told = sim.operations.retain("t", 0, dry_run=True)
    assert len(told.deleted) == 2
    assert sim.operations.retain("t", 0, dry_run=False) == told


def test_while_a_check_runs_the_next_one_is_not_known() -> None:
    """M28: the period begins at its end."""
    sim = started()
    seen: list[Schedule | None] = []
    task = sim.manager.retention.run_once
    retention = sim.manager.retention

    def look() -> int:
        seen.append(retention.schedule_of(LogConfig()))
        return task()

    retention.run_once = look  # type: ignore[method-assign] # a look from inside the task
    sim.clock.advance_ms(5 * MINUTE)
    assert seen
    assert {each and each.next_check_ms for each in seen} == {None}
    after = retention.schedule_of(LogConfig())
    assert after is not None
    assert after.next_check_ms == sim.clock.wall_ms() + 5 * MINUTE


def test_internal_topics_are_shown_and_not_run() -> None:
    """M28: as delete-records: InvalidTopicName; a dry run changes nothing and is answered."""
    sim = started(check_ms=NEVER)
    with pytest.raises(InvalidTopicName):
        sim.operations.retain("__consumer_offsets", 0, dry_run=False)


def test_what_went_is_told_with_its_rule() -> None:
    """M28: retain returns the segments; a hold keeps the rest."""
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 1, {"retention.ms": "1", "archive.hold": "true"})
    fill(sim, 3)
    sizes = [segment.size_bytes for segment in sim.operations.partition_log("t", 0).segments]
    sim.operations.raise_archived_offsets("t", {0: 1})
    outcome = sim.operations.retain("t", 0, dry_run=False)
    assert outcome.deleted == (Taken(0, Rule.TIME, sizes[0]),)
    assert outcome.log_start_offset == 1


@pytest.mark.parametrize("damage", [b"torn", bytes(24), b""], ids=["torn", "zeros", "none"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_damaged_index_is_counted_from_the_log(kind: str, damage: bytes) -> None:
    """M28 M04: entries of closed segments after a restart, also where the file is torn or padded.

    Zeros behind the entries are what a crash leaves of the room that was made for more.
    """
    sim = started(check_ms=NEVER)
    sim.operations.topics.create("t", 1, {"index.interval.bytes": "0", "retention.ms": "-1"})
    log = sim.operations.partition_log("t", 0)
    for _ in range(2):
        for _ in range(4):
            put(sim)
            sim.clock.advance_ms(1000)
        sim.manager.unit_of(log).writer.call(log.roll)
    before = described(sim)
    entries = sim.operations.count_index_entries("t", 0, before.segments)
    assert entries == [(3, 3), (3, 3), (0, 0)]
    path = f"{log.directory}/{0:020}{kind}"
    disk = sim.stop()
    disk.write_file_atomically(path, disk.read_file(path) + damage)
    again = SimManager(disk, config=sim.config).start()
    after = described(again)
    assert again.operations.count_index_entries("t", 0, after.segments) == entries
    assert [each.facts for each in after.segments[:2]] == [
        each.facts for each in before.segments[:2]
    ]
