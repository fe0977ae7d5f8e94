"""Goal: a partition that cannot be loaded is named with its reason and remedy, is never taken for
cleanly closed or removed, and costs nothing per refused request.
Method: directories changed between two lives of a manager.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.catalog import PartitionTable
from kafkalog.broker.topics.registry import decode_registry, encode_registry
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.cli.connection import message_of
from kafkalog.client.errors import entry_failure, was_not_appended
from kafkalog.errors import CorruptBatch, DescriptorsShort, DiskFull, LogDirOffline, UnknownTopic
from kafkalog.format.disk.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.topic_names import TopicPartition, decode_id, encode_id
from kafkalog.log.log_config import LogConfig
from kafkalog.server.protocol.errors import error_body
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.there import there

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


MARKER = "/data/a/.kafka_cleanshutdown"
HOME = "/data/a/t-0"
METADATA = f"{HOME}/partition.metadata"
REGISTRY = "/data/a/kafkalog.registry"
MIN_FREE_BYTES = 100_000
ONE = BrokerConfig(log_dirs=("/data/a",), log_dir_min_free_bytes=MIN_FREE_BYTES)
# A preallocated index has 96 bytes, one of these segments when closed 12 and less.
SMALL = LogConfig(segment_index_bytes=96, internal_segment_bytes=200)
RECORDS = 5
STRANGER = UUID(int=4711)


def manager_on(disk: SimFilesystem | None = None, config: BrokerConfig = ONE) -> SimManager:
    seed = 0 if disk is None else disk.generation  # another life, other chance
    return SimManager(disk, seed=seed, config=config, topic_defaults=SMALL)


def stopped_with_segments() -> SimFilesystem:
    """Topic t with some closed segments and topic u, after a clean stop."""
    sim = manager_on().start()
    for topic in "tu":
        sim.operations.topics.create(topic, 1)
        for _ in range(RECORDS):
            assert sim.produce(topic, batch_of("v" * 60)).error is None
    return sim.stop()


def without_indexes(disk: SimFilesystem) -> SimFilesystem:
    """The indexes of topic t and the marker are gone: the next start writes them anew."""
    for name in disk.list_dir(HOME):
        if name.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
            disk.unlink(f"{HOME}/{name}")
    disk.unlink(MARKER)
    return disk


def fill(disk: SimFilesystem) -> int:
    """No page is left; how many bytes there were."""
    free_bytes = disk.space("/data/a").usable_bytes
    disk.capacity_bytes -= free_bytes
    return free_bytes


def started_on_a_full_disk() -> tuple[SimManager, int, list[Any]]:
    """The manager with t out of service, what there is to free, and its lines."""
    sim = manager_on(without_indexes(stopped_with_segments()))
    freed = fill(sim.disk)
    with capture_logs() as lines:
        sim.start()
    return sim, freed, lines


def lines_of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


def log_end(sim: SimManager, topic: str = "t") -> int:
    return sim.operations.partition_log(topic, 0).log_end_offset


def start_without_t(disk: SimFilesystem, why: str) -> tuple[SimManager, Any]:
    """The daemon that serves u alone, and the line that says of t-0 why."""
    sim = manager_on(disk)
    with capture_logs() as lines:
        sim.start()
    with pytest.raises(LogDirOffline, match=f"t-0 is out of service: .*{why}"):
        sim.operations.partition_log("t", 0)
    assert log_end(sim, "u") == RECORDS
    (line,) = lines_of(lines, "partition_offline")
    assert (line["partition"], line["directory"]) == ("t-0", HOME)
    assert not lines_of(lines, "directory_set_aside")
    assert not lines_of(lines, "partition_missing_created_empty")
    return sim, line


def closed_indexes(disk: SimFilesystem) -> dict[str, int]:
    stats = sorted(disk.list_dir_stats(HOME), key=lambda stat: stat.name)
    last = [stat.name for stat in stats if stat.name.endswith(LOG_SUFFIX)][-1].partition(".")[0]
    suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    return {
        stat.name: stat.size
        for stat in stats
        if stat.name.endswith(suffixes) and not stat.name.startswith(last)
    }


def test_a_partition_that_found_the_disk_full_costs_the_marker() -> None:
    """M14: what was never recovered was not closed whole."""
    sim, freed, _ = started_on_a_full_disk()
    with pytest.raises(DiskFull):
        sim.operations.partition_log("t", 0)
    sim.disk.capacity_bytes += freed
    disk = sim.stop()
    assert not disk.exists(MARKER)
    again = manager_on(disk).start()
    assert log_end(again) == RECORDS
    assert again.stop().exists(MARKER)


@pytest.mark.parametrize("segment", range(RECORDS - 1))
def test_indexes_that_were_never_trimmed_are_rebuilt(segment: int) -> None:
    """M14: a full disk stopped their rebuilding below the recovery point."""
    sim = manager_on(without_indexes(stopped_with_segments()))
    path = f"{HOME}/{segment:020d}{TIME_INDEX_SUFFIX}"
    sim.disk.faults.add(Fault(error=errno.ENOSPC, kinds=frozenset({"write"}), path_contains=path))
    sim.start()
    disk = sim.stop()
    assert disk.stat(path).size == SMALL.segment_index_bytes
    again = manager_on(disk).start()
    assert log_end(again) == RECORDS
    sizes = closed_indexes(again.stop())
    assert len(sizes) == 2 * (RECORDS - 1)
    assert all(size < SMALL.segment_index_bytes for size in sizes.values())


def test_the_outage_is_named() -> None:
    """M15 M26: which partition, where, why and what to do; requests are told too."""
    sim, _, lines = started_on_a_full_disk()
    (line,) = lines_of(lines, "partition_offline")
    assert (line["log_level"], line["partition"], line["directory"]) == ("error", "t-0", HOME)
    assert "No space is left" in line["reason"]
    assert "Free space" in line["remedy"]
    with pytest.raises(DiskFull, match=r"Partition t-0 is out of service until .*No space"):
        sim.operations.partition_log("t", 0)
    assert sim.operations.readiness().offline_partitions == 1
    with capture_logs() as later:
        sim.clock.advance_ms(60_000)
    assert lines_of(later, "partition_offline") == []


def test_the_partition_comes_back_with_the_space() -> None:
    """M15: nobody has to restart; the other topic was served all the time; the stop is clean."""
    sim, freed, _ = started_on_a_full_disk()
    assert log_end(sim, "u") == RECORDS
    sim.clock.advance_ms(30_000)
    with pytest.raises(DiskFull):
        sim.operations.partition_log("t", 0)
    sim.disk.capacity_bytes += freed
    with capture_logs() as lines:
        sim.clock.advance_ms(20_000)
    (line,) = lines_of(lines, "partition_online")
    assert line["partition"] == "t-0"
    ready = sim.operations.readiness()
    assert (ready.offline_partitions, ready.full_dirs, ready.partitions) == (0, 0, 2)
    assert log_end(sim) == RECORDS
    command = sim.produce("t", batch_of("after"))
    assert command.error is None
    disk = sim.stop()
    assert disk.exists(MARKER)
    assert log_end(manager_on(disk).start()) == RECORDS + 1


def started_short_of_descriptors(nth: int) -> SimManager:
    """The manager whose load of t found none for the nth of its segments' files."""
    sim = manager_on(without_indexes(stopped_with_segments()))
    kinds = frozenset({"open", "create"})
    sim.disk.faults.add(Fault(error=errno.EMFILE, kinds=kinds, path_contains=f"{HOME}/0", nth=nth))
    return sim.start()


@pytest.mark.parametrize("nth", range(1, 12))
def test_short_descriptors_pass_too(nth: int) -> None:
    """M15: out of service until the next try; a load that failed keeps no descriptor."""
    sim = started_short_of_descriptors(nth)
    with pytest.raises(DescriptorsShort, match="Partition t-0 is out of service"):
        sim.operations.partition_log("t", 0)
    assert sim.disk.open_handles == started_short_of_descriptors(1).disk.open_handles
    sim.clock.advance_ms(10_000)
    assert log_end(sim) == RECORDS


def test_a_topic_that_is_deleted_meanwhile_stays_deleted() -> None:
    """M15: its partition is not loaded again; the next start removes what is left of it."""
    sim, freed, _ = started_on_a_full_disk()
    sim.disk.capacity_bytes += freed
    sim.manager.logs.units[0].log_dir.measure_space()
    sim.operations.topics.delete("t")
    sim.clock.advance_ms(20_000)
    assert sim.operations.readiness().offline_partitions == 0
    with pytest.raises(UnknownTopic):
        sim.operations.partition_log("t", 0)
    again = manager_on(sim.stop()).start()
    assert not again.disk.exists(HOME)


def test_a_stopping_daemon_loads_nothing() -> None:
    """M16: the stop closes what it found served; a try that comes later would not be closed."""
    sim, freed, _ = started_on_a_full_disk()
    sim.disk.capacity_bytes += freed
    sim.manager.registry.is_ready = False
    sim.manager.reload.run_once(sim.manager.logs.units[0].log_dir)
    assert len(sim.manager.logs.table.faults()) == 1


def test_a_partition_that_could_not_be_made_is_made_later() -> None:
    """M15: given up at a start on a full disk: named, then created when there is space; killed
    before a task wrote the checkpoints it ends where the records end.
    """
    disk = stopped_with_segments()
    disk.remove_tree(HOME)
    sim = manager_on(disk, replace(ONE, create_missing_partitions=True))
    freed = fill(disk)
    with capture_logs() as lines:
        sim.start()
    assert [line["partition"] for line in lines_of(lines, "partition_offline")] == ["t-0"]
    (line,) = lines_of(lines, "partition_missing_created_empty")
    assert (line["directory"], "move this directory away" in line["remedy"]) == (HOME, True)
    disk.capacity_bytes += freed
    sim.clock.advance_ms(20_000)
    assert sim.produce("t", batch_of("v")).error is None
    assert log_end(sim) == 1
    again = manager_on(sim.kill()).start()
    assert (log_end(again), again.manager.logs.log_of("t", 0).losses.ranges) == (1, ())


def test_unreadable_checkpoints_make_no_empty_twins() -> None:
    """M15: a directory whose load found no descriptor holds its partitions: none is made anew."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 2)
    away = sim.operations.partition_log("t", 0).directory
    for partition in range(2):
        sim.produce("t", batch_of("v"), partition=partition)
    again = SimManager(sim.stop(), config=BrokerConfig(log_dirs=DIRS))
    path = f"{away.rpartition('/')[0]}/recovery-point-offset-checkpoint"
    again.disk.faults.add(Fault(error=errno.EMFILE, kinds=frozenset({"open"}), path_contains=path))
    again.start()
    with pytest.raises(LogDirOffline):
        again.operations.partition_log("t", 0)
    assert again.operations.partition_log("t", 1).log_end_offset == 1
    for log_dir in DIRS:
        assert not [name for name in again.disk.list_dir(log_dir) if name.endswith("-stray")]
    last = SimManager(again.stop(), config=BrokerConfig(log_dirs=DIRS)).start()
    assert last.operations.partition_log("t", 0).log_end_offset == 1


def with_another_id(disk: SimFilesystem, topic_id: UUID = STRANGER) -> bytes:
    """Damage ``partition.metadata``; what it held."""
    before = disk.read_file(METADATA)
    disk.write_file_atomically(METADATA, encode_partition_metadata(topic_id))
    return before


@pytest.mark.parametrize("other", ["unknown", "of another topic"])
def test_another_id_keeps_the_partition_offline(other: str) -> None:
    """M14 M15: no empty twin, nothing renamed; restored, the partition is what it was."""
    disk = stopped_with_segments()
    whole = disk.read_file(METADATA)
    expected = manager_on(disk)
    expected.start()
    ids = {name: expected.operations.topics.describe(name).topic_id for name in "tu"}
    expected.stop()
    wrong = STRANGER if other == "unknown" else decode_id(ids["u"])
    with_another_id(disk, wrong)
    sim, line = start_without_t(disk, encode_id(wrong))
    assert encode_id(wrong) in line["reason"]
    assert ids["t"] in line["reason"]
    assert METADATA in line["reason"]
    assert "restore the file" in line["remedy"]
    disk = sim.stop()
    assert not disk.exists(MARKER)
    assert not [name for name in disk.list_dir("/data/a") if name.endswith("-stray")]
    disk.write_file_atomically(METADATA, whole)
    assert log_end(manager_on(disk).start()) == RECORDS


@pytest.mark.parametrize("damage", [b"", b"version: 0\n", bytes(43)])
def test_a_damaged_id_is_written_again(damage: bytes) -> None:
    """M14: nobody else claims the directory: served by its name, and healed for what copies it."""
    disk = stopped_with_segments()
    whole = disk.read_file(METADATA)
    disk.write_file_atomically(METADATA, damage)
    sim = manager_on(disk)
    with capture_logs() as lines:
        sim.start()
    assert log_end(sim) == RECORDS
    (line,) = lines_of(lines, "partition_metadata_written_again")
    assert (line["directory"], line["log_level"]) == (HOME, "warning")
    assert line["topic_id"] == sim.operations.topics.describe("t").topic_id
    disk = sim.stop()
    assert disk.read_file(METADATA) == whole
    with capture_logs() as lines:
        assert log_end(manager_on(disk).start()) == RECORDS
    assert not [each for each in lines if each["event"].startswith("partition_metadata")]


def test_an_empty_directory_with_another_id_is_put_aside() -> None:
    """M14: there is nothing to lose in it: as in Kafka, with the reason in the line."""
    sim = manager_on().start().with_topic("t", 1)
    disk = sim.stop()
    with_another_id(disk)
    again = manager_on(disk)
    with capture_logs() as lines:
        again.start()
    (line,) = lines_of(lines, "directory_set_aside")
    assert encode_id(STRANGER) in line["reason"]
    assert again.produce("t", batch_of("v")).error is None


def test_a_deleted_id_contradicts_nothing() -> None:
    """M14: the topic was deleted and made again while its directory was away: it goes."""
    disk = stopped_with_segments()
    old_id = disk.read_file(METADATA)
    sim = manager_on(disk).start()
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("new"))
    disk = sim.stop()
    disk.write_file_atomically(METADATA, old_id)
    again = manager_on(disk)
    with capture_logs() as lines:
        again.start()
    (line,) = lines_of(lines, "directory_set_aside")
    assert line["reason"] == "its topic was deleted"
    assert log_end(again) == 0


FOREIGN_KEY = "tiering.of.tomorrow"


def with_foreign_config(disk: SimFilesystem) -> SimFilesystem:
    state = decode_registry(disk.read_file(REGISTRY))
    configs = {FOREIGN_KEY: "true", "retention.ms": "5000000"}
    changed = state.with_topics([replace(state.topics["t"], overrides=configs)])
    disk.write_file_atomically(REGISTRY, encode_registry(changed))
    return disk


def test_a_config_of_another_version_keeps_its_topic_offline() -> None:
    """M14 M15: nothing is damaged, so nobody is told to move records away."""
    sim, line = start_without_t(with_foreign_config(stopped_with_segments()), FOREIGN_KEY)
    assert FOREIGN_KEY in line["reason"]
    assert f"kafkalog configs alter t --delete-config {FOREIGN_KEY}" in line["remedy"]
    assert "move" not in line["remedy"]
    disk = sim.stop()
    assert not disk.exists(MARKER)
    assert disk.exists(f"{HOME}/{0:020d}{LOG_SUFFIX}")


def test_a_config_of_another_version_is_deleted_here() -> None:
    """M15: The remedy works on the version that does not know the key; topics can be listed."""
    sim = manager_on(with_foreign_config(stopped_with_segments())).start()
    described = sim.operations.topics.describe("t")
    shown = {entry.name: entry.value for entry in described.configs}
    assert shown["retention.ms"] == "5000000"
    assert FOREIGN_KEY not in shown
    assert list(described.faults) == [0]
    assert sim.operations.default_acks("t") is Acks.ALL, "who appends is told the partition's fault"
    sim.operations.topics.alter_configs("t", [ConfigChange(FOREIGN_KEY, None)])
    again = manager_on(sim.stop()).start()
    assert log_end(again) == RECORDS
    assert again.operations.topics.describe("t").overrides == {"retention.ms": "5000000"}


def test_who_appends_to_a_damaged_log_is_told_which_and_that_nothing_was_appended() -> None:
    """Loaded of a message of format v1 whose CRC is wrong: 500, whose outcome is open elsewhere."""
    disk = stopped_with_segments()
    first = min(name for name in disk.list_dir(HOME) if name.endswith(LOG_SUFFIX))
    message = bytes(4) + b"\x01\x00" + bytes(8) + b"\xff" * 4 + b"\0\0\0\x01v"
    disk.open_write(f"{HOME}/{first}").pwrite(struct.pack(">qi", 0, len(message)) + message, 0)
    sim = manager_on(disk).start()
    with pytest.raises(CorruptBatch) as refused:
        sim.operations.partition_log("t", 0)
    failure = there(entry_failure(error_body(refused.value)))
    assert failure.error_code == 50010
    assert was_not_appended(failure)
    assert message_of(failure) == (
        "A stored record batch is corrupt and is not served. t-0 is out of service: its line "
        "partition_offline in the daemon's log says why and what to do."
    )


def test_refused_requests_leave_nothing_on_the_fault() -> None:
    """M15: no frame, and so no body, of an earlier request stays reachable."""
    table = PartitionTable()
    fault = CorruptBatch("rot", file="/d/t-0/0.log", position=0)
    table.add_fault(TopicPartition("t", 0), fault, "/d/t-0")

    def depth() -> int:
        with pytest.raises(CorruptBatch) as refused:
            table.get("t", 0)
        frames, trace = 0, refused.value.__traceback__
        while trace is not None:
            frames, trace = frames + 1, trace.tb_next
        return frames

    assert [depth() for _ in range(5)] == [depth()] * 5
