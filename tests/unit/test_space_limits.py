"""Goal: appends end before the disk is really full and at a topic's quota, all else goes on, and
appends come back alone.
Method: a simulated disk of known size; retention and deletions in between.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.catalog import PartitionTable
from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.console.views.daemon import log_dirs_view
from kafkalog.errors import (
    AppendOutcomeUnknown,
    DiskFull,
    LargerThanQuota,
    LogStartNotDurable,
    QuotaExceeded,
)
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import SimManager, batch_of, records_of
from tests.unit.test_console_views import page_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.broker.directory.commands import Command
    from kafkalog.env.filesystem import DiskSpace


RESERVE = 1_000_000
SMALL = LogConfig(segment_index_bytes=96, internal_segment_bytes=100_000, retention_bytes=0)
VALUE = "v" * 9_000
ONE = ("/data/a",)


def manager_with(
    above_reserve_bytes: int, *, reserve_bytes: int = RESERVE, log_dirs: tuple[str, ...] = ONE
) -> SimManager:
    config = BrokerConfig(log_dirs=log_dirs, log_dir_min_free_bytes=reserve_bytes)
    sim = SimManager(config=config, topic_defaults=SMALL).start().with_topic("t", 1)
    set_free(sim, reserve_bytes + above_reserve_bytes)
    sim.manager.logs.units[0].log_dir.measure_space()
    return sim


def free_bytes(sim: SimManager) -> int:
    return sim.disk.space("/data/a").usable_bytes


def set_free(sim: SimManager, free: int) -> None:
    sim.disk.capacity_bytes += free - free_bytes(sim)


def append(sim: SimManager, value: str = VALUE) -> Command:
    return sim.produce("t", batch_of(value), Acks.LEADER)


def fill(sim: SimManager) -> int:
    """Append until it is refused; how many were taken."""
    for count in range(10_000):
        command = append(sim)
        if command.error is not None:
            assert isinstance(command.error, DiskFull), command.error
            return count
    raise AssertionError("never refused")


@pytest.mark.parametrize("above_reserve_bytes", [0, 70_000, 1_000_000, 5_000_000])
def test_appends_end_at_the_reserve(above_reserve_bytes: int) -> None:
    """M15: no append writes into it but by what stands between two looks, and little is wasted."""
    sim = manager_with(above_reserve_bytes)
    fill(sim)
    assert RESERVE - 100_000 < free_bytes(sim) < RESERVE + 100_000


def test_what_frees_space_still_works() -> None:
    """M15: reads, retention, checkpoints, a new topic, deletes: the reserve is theirs."""
    sim = manager_with(1_000_000)
    taken = fill(sim)
    set_free(sim, RESERVE // 2)
    sim.clock.advance_ms(10_000)
    found = sim.operations.fetch(
        sim.operations.partition_log("t", 0), 0, 1, Isolation.HIGH_WATERMARK, may_block=True
    )
    assert len(found.data) > 9_000
    sim.operations.topics.create("u", 3)
    assert sim.delete_records("t", taken // 2).error is None
    assert sim.manager.retention.run_once() > 5
    sim.operations.topics.delete("t")
    assert sim.operations.readiness().full_dirs == 1
    sim.clock.advance_ms(600_000)
    assert sim.task_faults == []
    assert sim.operations.readiness().full_dirs == 0
    assert sim.produce("u", batch_of(VALUE)).error is None


def test_it_is_told_once_and_heals_with_room_to_spare() -> None:
    """M15 M26: one error line, the metric, the probe's reason; back only an eighth above."""
    sim = manager_with(100_000)
    with capture_logs() as lines:
        fill(sim)
        set_free(sim, RESERVE - 1)
        for _ in range(50):
            sim.clock.advance_ms(1_000)
            assert isinstance(append(sim).error, DiskFull)
    (line,) = [line for line in lines if line["event"] == "log_dir_full"]
    assert (line["log_level"], line["log_dir"]) == ("error", "/data/a")
    assert "log.dir.min.free.bytes (1000000)" in line["reason"]
    (fault,) = sim.operations.readiness().faults
    assert (fault.log_dir, fault.state, fault.reason) == ("/data/a", "full", line["reason"])
    full = {"log_dir": "/data/a"}
    assert sim.metrics.registry.get_sample_value("kafkalog_log_dir_full", full) == 1
    set_free(sim, RESERVE + RESERVE // 8)
    sim.clock.advance_ms(10_000)
    assert isinstance(append(sim).error, DiskFull)
    set_free(sim, RESERVE + RESERVE // 8 + 100_000)
    sim.clock.advance_ms(300)
    with capture_logs() as lines:
        assert append(sim).error is None
    assert [line["event"] for line in lines] == ["log_dir_has_space_again"]
    assert sim.operations.readiness().faults == ()
    assert sim.metrics.registry.get_sample_value("kafkalog_log_dir_full", full) == 0


@pytest.mark.parametrize(
    ("reserve_bytes", "remedy"),
    [
        (RESERVE, "Free space until more than 1125000 bytes are free."),
        (0, "Free space on its disk: appends begin again by themselves."),
    ],
)
def test_the_remedy_names_what_is_enough(reserve_bytes: int, remedy: str) -> None:
    """M15: with and without a reserve."""
    sim = manager_with(100_000, reserve_bytes=reserve_bytes)
    with capture_logs() as lines:
        fill(sim)
    assert [line["remedy"] for line in lines if line["event"] == "log_dir_full"] == [remedy]


def test_others_who_fill_the_disk_are_noticed() -> None:
    """M15: without an append, by the task; with appends before half the room is used."""
    sim = manager_with(1 << 30)
    set_free(sim, RESERVE - 100)
    sim.clock.advance_ms(10_000)
    assert sim.operations.readiness().full_dirs == 1
    assert isinstance(append(sim).error, DiskFull)


def test_others_who_fill_the_disk_between_two_appends_are_noticed() -> None:
    """M15: the last look may be a quarter of a second old, however small the appends are."""
    sim = manager_with(1 << 30)
    assert append(sim, "v").error is None
    set_free(sim, 0)
    sim.clock.advance_ms(250)
    assert isinstance(append(sim, "v").error, DiskFull)
    assert sim.operations.readiness().full_dirs == 1


def test_without_a_reserve_only_the_disk_refuses() -> None:
    """M15: 0 uses the last page, and the directory is full when the disk says so."""
    sim = manager_with(200_000, reserve_bytes=0)
    fill(sim)
    assert free_bytes(sim) < 20_000
    assert sim.operations.readiness().full_dirs == 1
    set_free(sim, 100_000)
    sim.clock.advance_ms(300)
    assert append(sim).error is None


def test_a_disk_that_hides_what_it_lacks_is_asked_less_and_less() -> None:
    """M15: full by inodes or a quota, with bytes free."""
    sim = manager_with(1_000_000, reserve_bytes=0)
    told = sim.disk.space
    set_free(sim, 0)
    sim.disk.space = lambda path: told(path)._replace(usable_bytes=1 << 30)  # type: ignore[method-assign]
    with capture_logs() as lines:
        for _ in range(6_000):
            assert isinstance(append(sim).error, DiskFull)
            sim.clock.advance_ms(100)
    events = [line["event"] for line in lines]
    assert 2 <= events.count("log_dir_full") <= 9 + 600 // 32
    sim.disk.space = told  # type: ignore[method-assign]
    set_free(sim, 1_000_000)
    sim.clock.advance_ms(32_000)
    assert append(sim).error is None
    # when it went well for a second the next time is a first time
    sim.clock.advance_ms(1_100)
    set_free(sim, 0)
    assert isinstance(append(sim).error, DiskFull)
    set_free(sim, 1_000_000)
    sim.clock.advance_ms(300)
    assert append(sim).error is None


def test_a_disk_that_only_refuses_new_files_takes_appends() -> None:
    """M15: no inodes are left. What checkpoints lack does not keep appends to open segments out."""
    sim = manager_with(1_000_000_000, reserve_bytes=0)
    log_dir = sim.manager.logs.units[0].log_dir
    taken = 0
    for tenth in range(6_000):
        if tenth % 50 == 0:
            log_dir.fault(OSError(errno.ENOSPC, "no inodes"))
        taken += append(sim, "v").error is None
        sim.clock.advance_ms(100)
    assert taken > 5_500


def test_a_refusal_by_the_reserve_waits_for_no_one() -> None:
    """M15: whatever the disk hid before."""
    sim = manager_with(1_000_000)
    log_dir = sim.manager.logs.units[0].log_dir
    for _ in range(600):
        if append(sim, "v").error is None:
            log_dir.fault(OSError(errno.ENOSPC, "a quota"))
        sim.clock.advance_ms(100)
    sim.clock.advance_ms(32_000)
    assert append(sim, "v").error is None
    sim.clock.advance_ms(3_600_000)
    set_free(sim, RESERVE - 1)
    sim.clock.advance_ms(10_000)
    assert isinstance(append(sim, "v").error, DiskFull)
    log_dir.fault(OSError(errno.ENOSPC, "a checkpoint"))
    set_free(sim, 2 * RESERVE)
    sim.clock.advance_ms(300)
    assert append(sim, "v").error is None


def test_retention_frees_a_disk_that_others_filled() -> None:
    """M15: not a page is left for a checkpoint: segment by segment, then as ever."""
    sim = manager_with(2_000_000, reserve_bytes=0)
    taken = fill(sim)
    set_free(sim, 0)
    log = sim.operations.partition_log("t", 0)
    before = log.segments.values
    assert isinstance(append(sim).error, DiskFull)
    assert isinstance(sim.delete_records("t", taken // 2).error, LogStartNotDurable)
    assert sim.manager.retention.run_once() == 1
    assert log.segments.first is before[1]
    assert [name for name in sim.disk.list_dir("/data/a") if name.endswith(".tmp")] == []
    sim.clock.advance_ms(60_000)
    assert free_bytes(sim) > 90_000
    assert append(sim).error is None
    assert sim.manager.retention.run_once() > 5
    assert len(log.segments) == 1
    end = log.log_end_offset
    again = SimManager(sim.stop(), seed=1, config=sim.config, topic_defaults=SMALL).start()
    assert again.operations.partition_log("t", 0).log_start_offset > taken // 2
    assert again.operations.partition_log("t", 0).log_end_offset == end


def test_a_topic_goes_from_a_full_disk_after_one_of_its_segments() -> None:
    """M14 M15: a deletion writes the registry. Deleted records and a check make room for that."""
    config = BrokerConfig(log_dirs=ONE, log_dir_min_free_bytes=0)
    defaults = replace(SMALL, retention_bytes=-1)
    sim = SimManager(config=config, topic_defaults=defaults).start().with_topic("t", 1)
    set_free(sim, 2_000_000)
    taken = fill(sim)
    set_free(sim, 0)
    with pytest.raises(DiskFull):
        sim.operations.topics.delete("t")
    assert isinstance(sim.delete_records("t", taken // 2).error, LogStartNotDurable)
    assert sim.manager.retention.run_once() == 1
    sim.clock.advance_ms(60_000)
    sim.operations.topics.delete("t")
    sim.clock.advance_ms(600_000)
    assert free_bytes(sim) > 1_500_000


def test_records_whose_sync_found_no_room_are_unknown_and_durable_later() -> None:
    """M15: they fit into the last page; the epochs that a sync writes first do not."""
    sim = manager_with(1 << 30)
    for _ in range(10):
        assert sim.produce("t", batch_of("v"), Acks.ALL).error is None
    assert sim.delete_records("t", 5).error is None
    log, log_dir = sim.operations.partition_log("t", 0), sim.manager.logs.units[0].log_dir
    free = free_bytes(sim)
    set_free(sim, 0)
    command = sim.produce("t", batch_of("v"), Acks.ALL)
    assert isinstance(command.error, AppendOutcomeUnknown), command.error
    assert (log_dir.is_online, log_dir.is_full) == (True, True)
    assert (log.log_end_offset, log.high_watermark) == (11, 10)
    set_free(sim, free)
    sim.clock.advance_ms(300)
    assert sim.produce("t", batch_of("v"), Acks.ALL).error is None
    assert (log.log_end_offset, log.high_watermark) == (12, 12)


def test_what_a_killed_process_was_writing_is_removed() -> None:
    """M14 M15: temporary files of every file that is replaced; the rest of a name stays."""
    sim = manager_with(2_000_000)
    fill(sim)
    sim.clock.advance_ms(100_000)
    disk = sim.kill()
    places = [f"/data/a/{name}" for name in disk.list_dir("/data/a") if "checkpoint" in name]
    places += ["/data/a/kafkalog.registry", "/data/a/t-0/leader-epoch-checkpoint"]
    assert len(places) > 3
    for path in [*places, "/data/a/t-0/partition.metadata", "/data/a/notes"]:
        disk.open_write(f"{path}.tmp").pwrite(b"half", 0)
    SimManager(disk, seed=1, config=sim.config, topic_defaults=SMALL).start()
    left = [name for home in ("", "/t-0") for name in disk.list_dir(f"/data/a{home}")]
    assert [name for name in left if name.endswith(".tmp")] == ["notes.tmp"]


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_power_cut_after_that_gives_no_offset_twice(mode: CrashMode) -> None:
    """M14 M15: the segment may be back or not; what was durable is there."""
    sim = manager_with(2_000_000, reserve_bytes=0)
    fill(sim)
    sim.threads.run_until_idle()
    log = sim.operations.partition_log("t", 0)
    durable_end, oldest = log.recovery_point, log.segments.values[:2]
    set_free(sim, 0)
    assert sim.manager.retention.run_once() == 1
    sim.threads.kill_all()
    disk = sim.disk.crash(mode, 3)
    disk.capacity_bytes += 1_000_000
    again = SimManager(disk, seed=1, config=sim.config, topic_defaults=SMALL).start()
    found = again.operations.partition_log("t", 0)
    assert found.log_start_offset in [segment.base_offset for segment in oldest]
    assert found.log_end_offset >= durable_end
    check_invariants(found)


def test_an_append_asks_the_file_system_seldom() -> None:
    """M15: a thousand appends to a disk with room do not look once."""
    sim = manager_with(1 << 34)
    looks = 0

    def count(path: str) -> DiskSpace:
        nonlocal looks
        looks += 1
        return SimFilesystem.space(sim.disk, path)

    sim.disk.space = count  # type: ignore[method-assign] # counts calls, changes none
    for _ in range(1_000):
        assert append(sim, "v").error is None
    assert looks == 0


def test_a_refusal_for_want_of_room_is_told() -> None:
    """M15: it would eat the reserve; a smaller one is taken."""
    sim = manager_with(70_000)
    with capture_logs() as lines:
        refused = [append(sim, "v" * 90_000) for _ in range(20)]
    assert all(isinstance(command.error, DiskFull) for command in refused)
    assert "90" in str(refused[0].error)
    assert [line["event"] for line in lines] == ["append_larger_than_space"]
    ready = sim.operations.readiness()
    assert (ready.full_dirs, [fault.state for fault in ready.faults]) == (0, ["low"])
    low = {"log_dir": "/data/a"}
    assert sim.metrics.registry.get_sample_value("kafkalog_log_dir_full", low) == 0
    (shown,) = log_dirs_view(sim.operations).log_dirs
    assert (shown.full_reason, shown.low_reason) == (None, ready.faults[0].reason)
    assert "/data/a is low</strong>: Log directory" in page_of(log_dirs_view(sim.operations))
    assert append(sim).error is None
    set_free(sim, 2 * RESERVE)
    sim.clock.advance_ms(10_000)
    assert sim.operations.readiness().faults == ()


def test_the_description_of_log_directories_is_not_old() -> None:
    """An operator who asks sees what is free now; who may not block sees the last measurement."""
    sim = manager_with(1 << 30)
    before = free_bytes(sim)
    set_free(sim, 0)
    (told,) = sim.operations.log_dirs.describe()
    assert (told.state, told.space.usable_bytes) == ("online", before)
    (told,) = sim.operations.log_dirs.describe(may_block=True)
    assert (told.state, told.space.usable_bytes) == ("full", 0)


def test_the_page_of_log_directories_says_full() -> None:
    sim = manager_with(100_000)
    for above_bytes, is_full in ((100_000, False), (-1, True), (RESERVE, False)):
        set_free(sim, RESERVE + above_bytes)
        sim.manager.logs.units[0].log_dir.measure_space()
        view = log_dirs_view(sim.operations)
        (shown,) = view.log_dirs
        assert shown.offline_reason is None
        assert ("fewer than log.dir.min.free.bytes" in (shown.full_reason or "")) is is_full
        html = page_of(view)
        assert ("/data/a is full</strong>: Log directory /data/a has" in html) is is_full
        assert ('<span class="badge well">online</span>' in html) is not is_full


SMALL_QUOTA = LogConfig(segment_index_bytes=96, internal_segment_bytes=1_000)
QUOTA_VALUE = "v" * 132
BATCH_BYTES = len(batch_of(QUOTA_VALUE))
QUOTA = 10 * BATCH_BYTES + BATCH_BYTES // 2


def started(partitions: int = 1, quota: int = QUOTA) -> SimManager:
    sim = SimManager(topic_defaults=SMALL_QUOTA).start()
    sim.operations.topics.create("t", partitions, {"quota.bytes": str(quota)})
    return sim


def alter(sim: SimManager, **changes: str | None) -> None:
    given = [ConfigChange(key.replace("_", "."), text) for key, text in changes.items()]
    sim.operations.topics.alter_configs("t", given)


def append_values(
    sim: SimManager, value: str = QUOTA_VALUE, partition: int = 0, topic: str = "t"
) -> Command:
    return sim.produce(topic, batch_of(value), Acks.LEADER, partition)


def held(sim: SimManager) -> int:
    return sim.manager.logs.table.size_bytes_of("t")


def fill_quota(sim: SimManager, partitions: int = 1) -> int:
    """Append in turn until each partition refuses; how many were taken."""
    count, refused = 0, set[int]()
    while len(refused) < partitions:
        for partition in range(partitions):
            command = append_values(sim, partition=partition)
            assert held(sim) <= QUOTA
            if command.error is None:
                count += 1
            else:
                assert isinstance(command.error, QuotaExceeded)
                refused.add(partition)
    return count


@pytest.mark.parametrize("partitions", [1, 5])
def test_the_quota_is_the_topics(partitions: int) -> None:
    """M16: over all partitions and both directories; other topics, smaller appends go on."""
    sim = started(partitions).with_topic("other", 1)
    assert fill_quota(sim, partitions) == 10
    assert append_values(sim, topic="other").error is None
    assert append_values(sim, "v").error is None
    error = append_values(sim).error
    assert error is not None
    assert error.details == {"topic": "t", "quota_bytes": QUOTA, "used_bytes": held(sim)}


def told_of_quotas(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Events about quotas; a log that fills up rolls, too."""
    return [line["event"] for line in lines if line["event"].startswith("topic_")]


def test_it_resumes_when_retention_made_room() -> None:
    """M15 M16: by itself, told once each way and counted."""
    sim = started()
    with capture_logs() as lines:
        fill_quota(sim)
        for _ in range(5):
            append_values(sim)
            sim.clock.advance_ms(300)
    assert told_of_quotas(lines) == ["topic_quota_reached"]
    refusals = sim.metrics.registry.get_sample_value(
        "kafkalog_quota_refusals_total", {"topic": "t"}
    )
    assert refusals == 6
    alter(sim, retention_bytes="1000")
    assert sim.manager.retention.run_once() > 0
    with capture_logs() as lines:
        assert append_values(sim).error is None
    assert told_of_quotas(lines) == ["topic_has_room_again"]
    assert held(sim) <= QUOTA


def test_what_is_larger_than_the_quota_never_fits() -> None:
    """M16: refused for good, not until something goes; told once; smaller ones are taken."""
    sim = started(quota=BATCH_BYTES - 1)
    with capture_logs() as lines:
        for _ in range(2):
            error = append_values(sim).error
            assert isinstance(error, LargerThanQuota)
            assert error.details["used_bytes"] == 0
    assert [line["event"] for line in lines] == ["append_larger_than_quota"]
    assert append_values(sim, "v").error is None


def test_deleted_records_make_no_room_before_their_files_go() -> None:
    """M16: what counts is the disk: whole segments, when a retention check takes them."""
    sim = started()
    fill_quota(sim)
    assert sim.delete_records("t", 9).error is None
    sim.clock.advance_ms(300)
    assert isinstance(append_values(sim).error, QuotaExceeded)
    sim.manager.retention.run_once()
    sim.clock.advance_ms(300)
    assert append_values(sim).error is None


def test_a_changed_quota_counts_at_once() -> None:
    """M13: raised, lowered below what is there, taken away; after a restart too."""
    sim = started()
    fill_quota(sim)
    alter(sim, quota_bytes=str(QUOTA + BATCH_BYTES))
    assert append_values(sim).error is None
    alter(sim, quota_bytes="1")
    assert isinstance(append_values(sim, "v").error, QuotaExceeded)
    again = SimManager(sim.stop(), seed=1, topic_defaults=SMALL_QUOTA).start()
    assert isinstance(append_values(again, "v").error, QuotaExceeded)
    alter(again, quota_bytes=None)
    assert append_values(again).error is None
    alter(again, quota_bytes="0")
    assert isinstance(append_values(again, "v").error, QuotaExceeded)


def test_appends_that_share_a_write_are_judged_one_by_one() -> None:
    """M16: of a run that does not fit as a whole, the ones that do are taken."""
    sim = started()
    append_values(sim)
    log = sim.operations.partition_log("t", 0)
    done: list[Command] = []
    for _ in range(15):
        records = records_of(batch_of(QUOTA_VALUE), log)
        sim.manager.logs.unit_of(log).writer.submit(
            AppendCommand(log, records, Acks.LEADER, None, done.append)
        )
    sim.threads.run_until(lambda: len(done) == 15)
    taken = [command for command in done if command.error is None]
    assert len(taken) == 9
    assert log.log_end_offset == 10
    assert all(isinstance(each.error, QuotaExceeded) for each in done if each.error is not None)


def test_a_topic_made_again_starts_from_nothing() -> None:
    """M14: the old one's bytes are not the new one's."""
    sim = started()
    fill_quota(sim)
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1, {"quota.bytes": str(QUOTA)})
    assert fill_quota(sim) == 10


def test_appends_far_from_the_quota_do_not_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """M16: one look at the segments, whatever their number."""
    sums, whole = list[str](), PartitionTable.size_bytes_of

    def counted(table: PartitionTable, topic: str) -> int:
        sums.append(topic)
        return whole(table, topic)

    monkeypatch.setattr(PartitionTable, "size_bytes_of", counted)
    sim = started(quota=1 << 30)
    for _ in range(200):
        assert append_values(sim).error is None
    assert sums == ["t"]
