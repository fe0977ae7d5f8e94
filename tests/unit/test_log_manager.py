"""Goal: the manager starts, serves, stops and starts again; each fault stays where it happened.
Method: a whole manager on the simulated disk, clock and threads; one part is broken.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from zlib import crc32

import pytest
from structlog.testing import capture_logs

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS
from kafkalog.broker.values import Acks
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.values import Isolation, LogAppendInfo
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager, batch_of, records_of

MARKER = ".kafka_cleanshutdown"


def started(disk: SimFilesystem | None = None, seed: int = 0) -> SimManager:
    return SimManager(disk, seed=seed).start()


def fetched(sim: SimManager, topic: str, partition: int = 0) -> int:
    """Offset behind the last batch a reader sees."""
    log = sim.operations.partition_log(topic, partition)
    found = sim.operations.fetch(
        log, log.log_start_offset, 1 << 20, Isolation.HIGH_WATERMARK, may_block=True
    )
    return found.next_offset


def test_life_of_a_directory() -> None:
    """M01 M14: produce, clean stop with marker and checkpoints, start without recovery."""
    sim = started().with_topic("t", 2)
    command = sim.produce("t", batch_of("a", "b"))
    assert command.error is None
    assert isinstance(command.result, LogAppendInfo)
    assert (command.result.first_offset, command.result.last_offset) == (0, 1)
    assert fetched(sim, "t") == 2
    disk = sim.stop()
    for path in DIRS:
        assert disk.read_file(f"{path}/{MARKER}") == b'{"version":0,"brokerEpoch":-1}'
    home = next(path for path in DIRS if disk.exists(f"{path}/t-0"))
    points = disk.read_file(f"{home}/recovery-point-offset-checkpoint")
    assert points == b"0\n1\nt 0 2\n"
    assert disk.read_file(f"{home}/replication-offset-checkpoint") == points
    assert len(disk.read_file(f"{home}/t-0/partition.metadata")) == 43
    again = started(disk)
    assert not disk.exists(f"{home}/{MARKER}")
    assert fetched(again, "t") == 2


def test_the_file_of_the_cleaner_stands_in_every_directory_from_the_start() -> None:
    """Kafka makes it, as its other checkpoint files, before anything is cleaned."""
    sim = started()
    empty, path = b"0\n0\n", f"{DIRS[0]}/{CLEANER_OFFSETS}"
    for log_dir in DIRS:
        assert sim.disk.read_file(f"{log_dir}/{CLEANER_OFFSETS}") == empty
    disk = sim.stop()
    disk.unlink(path)  # one that an earlier release left without it
    assert started(disk).disk.read_file(path) == empty


def test_partitions_go_where_the_fewest_logs_are() -> None:
    """M14: four partitions on two empty directories are two each."""
    sim = started().with_topic("t", 4)
    assert [len(sim.manager.logs.table.logs_in(path)) for path in DIRS] == [2, 2]


def test_one_sync_serves_all_that_were_written_before_it() -> None:
    sim = started().with_topic("t", 1)
    log = sim.operations.partition_log("t", 0)
    sim.threads.run_until_idle()
    done: list[object] = []
    before = len([op for op in sim.disk.operations if op.kind == "datasync"])
    for _ in range(50):
        records = records_of(batch_of("a"), log)
        sim.operations.submit_produce(log, records, Acks.ALL, on_done=done.append)
    assert log.high_watermark == 0
    sim.threads.run_until(lambda: len(done) == 50)
    syncs = len([op for op in sim.disk.operations if op.kind == "datasync"]) - before
    assert log.high_watermark == 50
    assert 0 < syncs < 25
    assert sim.sink.advanced == {TopicPartition("t", 0)}


def test_delete_records_is_durable_before_the_answer() -> None:
    """M10 M14: the start offset survives a power cut right after the answer."""
    sim = started().with_topic("t", 1)
    sim.produce("t", batch_of("a", "b", "c"))
    assert isinstance(sim.delete_records("t", 4).error, errors.OffsetAboveHighWatermark)
    assert sim.delete_records("t", 2).result == 2
    sim.threads.kill_all()
    again = started(sim.disk.crash(CrashMode.DROP_ALL))
    assert again.operations.partition_log("t", 0).log_start_offset == 2
    assert again.delete_records("t", -1).result == 3
    again.operations.topics.create("c", 1, {"cleanup.policy": "compact"})
    assert isinstance(again.delete_records("c", 0).error, errors.PolicyViolation)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize(
    ("file", "start"), [("kafkalog.checkpoint", 0), ("log-start-offset-checkpoint", 2)]
)
def test_a_log_start_that_is_not_durable_is_told(file: str, start: int, is_repeated: bool) -> None:
    """The checked file is there first: it alone keeps the log start."""
    sim = started().with_topic("t", 1)
    sim.produce("t", batch_of("a", "b", "c"))
    full = Fault(error=errno.ENOSPC, path_contains=file)
    sim.disk.faults.add(full)
    told = sim.delete_records("t", 2).error
    assert isinstance(told, errors.LogStartNotDurable)
    assert "gone for readers" in told.message
    assert told.details["low_watermark"] == 2
    assert sim.operations.partition_log("t", 0).log_start_offset == 2
    if is_repeated:
        assert sim.delete_records("t", 2).result == 2
    sim.threads.kill_all()
    again = started(sim.disk.crash(CrashMode.DROP_ALL))
    assert again.operations.partition_log("t", 0).log_start_offset == (2 if is_repeated else start)


def test_a_deletion_below_a_durable_log_start_writes_nothing() -> None:
    """A full disk cannot fail it, nor make it say that the records may be back."""
    sim = started().with_topic("t", 1)
    sim.produce("t", batch_of("a", "b", "c"))
    assert sim.delete_records("t", 2).result == 2
    sim.disk.faults.add(Fault.no_space("checkpoint"))
    assert sim.delete_records("t", 1).result == 2
    assert sim.delete_records("t", 2).result == 2
    told = sim.delete_records("t", 3).error
    assert isinstance(told, errors.LogStartNotDurable)
    assert isinstance(sim.delete_records("t", 1).error, errors.LogStartNotDurable)
    sim.disk.faults.disarm()
    sim.threads.kill_all()
    again = started(sim.disk.crash(CrashMode.DROP_ALL))
    assert again.operations.partition_log("t", 0).log_start_offset == 2


def test_topic_rules() -> None:
    sim = started()
    operations = sim.operations
    operations.topics.create("a.b", 1)
    for error, name, count, configs in (
        (errors.InvalidTopicName, "a/b", 1, {}),
        (errors.InvalidTopicName, "__consumer_offsets", 1, {}),
        (errors.TopicExists, "a.b", 1, {}),
        (errors.TopicCollision, "a_b", 1, {}),
        (errors.InvalidPartitions, "n", 0, {}),
        (errors.InvalidPartitions, "n", 10_001, {}),
        (errors.InvalidTopicConfig, "n", 1, {"segment.bytes": "x"}),
    ):
        with pytest.raises(error):
            operations.topics.create(name, count, configs)
    with pytest.raises(errors.InvalidRequest):
        operations.topics.create("n", 1, replication_factor=3)
    described = operations.topics.create("n", -1, {"http.produce.acks": "1"}, validate_only=True)
    assert described.partition_count == 1
    assert operations.topic_names() == ["a.b"]
    with pytest.raises(errors.UnknownPartition):
        operations.partition_log("a.b", 1)
    operations.topics.create("n", 1, {"http.produce.acks": "1"})
    assert operations.default_acks("n") is Acks.LEADER
    assert operations.default_acks("a.b") is Acks.ALL


def test_the_renames_of_a_deletion_share_a_sync() -> None:
    sim = started().with_topic("t", 40)
    before = len(sim.disk.operations)
    sim.operations.topics.delete("t")
    calls = sim.disk.operations[before:]
    last_rename = {
        path: max(at for at, call in enumerate(calls) if call.path.startswith(f"{path}/t-"))
        for path in DIRS
    }
    for path in DIRS:
        syncs = [
            at for at, call in enumerate(calls) if (call.kind, call.path) == ("sync_dir", path)
        ]
        assert len([at for at in syncs if at < last_rename[path]]) <= 1  # of the registry
        assert any(at > last_rename[path] for at in syncs)
    disk = sim.disk.crash(CrashMode.DROP_ALL)
    assert not [name for path in DIRS for name in disk.list_dir(path) if name.endswith("-0")]


def test_found_directories() -> None:
    """M14: unknown ones are adopted once, later set aside; what is no partition is left alone."""
    disk = SimFilesystem()
    for name in ("old-0", "lost+found", "__cluster_metadata-0"):
        disk.make_dir(f"/data/a/{name}")
    sim = started(disk)
    assert sim.operations.topic_names() == ["old"]
    disk = sim.stop()
    disk.make_dir("/data/b/alien-0")
    again = started(disk)
    assert again.operations.topic_names() == ["old"]
    stray = [name for name in disk.list_dir("/data/b") if name.startswith("alien-0")]
    assert len(stray) == 1
    assert stray[0].endswith("-stray")
    assert disk.exists("/data/a/lost+found")
    assert disk.exists("/data/a/__cluster_metadata-0")


def test_what_is_no_partition_is_named_and_left_alone() -> None:
    """M14 M15: lost+found, odd files, links: never followed, changed or deleted."""
    disk = SimFilesystem()
    disk.make_dir("/elsewhere/t-0")
    for log_dir in DIRS:
        disk.make_dir(f"{log_dir}/lost+found")
        disk.write_file_atomically(f"{log_dir}/notes.txt", b"mine")
        disk.plant_link(f"{log_dir}/t-0", "/elsewhere/t-0")
    for _ in range(2):  # the second start finds our own files too
        with capture_logs() as lines:
            sim = started(disk)
        named = {
            (line["log_level"], line["event"], line["log_dir"], line["name"], line.get("kind"))
            for line in lines
            if line["event"] in ("directory_skipped", "entry_left_alone")
        }
        assert named == {
            (*told, log_dir, *entry)
            for log_dir in DIRS
            for told, entry in (
                (("info", "directory_skipped"), ("lost+found", None)),
                (("warning", "entry_left_alone"), ("notes.txt", "file")),
                (("warning", "entry_left_alone"), ("t-0", "link or device")),
            )
        }
        assert sim.operations.topic_names() == []
        disk = sim.stop()
    assert disk.list_dir("/elsewhere/t-0") == []
    assert all(disk.read_file(f"{log_dir}/notes.txt") == b"mine" for log_dir in DIRS)


def test_a_directory_that_fails_says_why_once() -> None:
    """M15 M26: log, metrics and probe have the reason; later errors add nothing."""
    sim = started().with_topic("t", 4)
    lost, kept = sim.manager.logs.units
    sim.disk.faults.add(
        Fault(error=errno.EIO, kinds=frozenset({"write"}), path_contains=DIRS[0], times=10**9)
    )
    with capture_logs() as lines:
        for number in range(4):
            for _ in range(3):
                with suppress(errors.LogDirOffline):
                    sim.produce("t", batch_of("v"), partition=number)
        sim.clock.advance_ms(100_000)
    (line,) = [line for line in lines if line["event"] == "log_dir_offline"]
    assert (line["log_level"], line["log_dir"]) == ("error", lost.log_dir.path)
    assert line["reason"]
    assert line["file"].startswith(f"{DIRS[0]}/t-")
    (fault,) = sim.operations.readiness().faults
    assert (fault.log_dir, fault.state, fault.reason) == (DIRS[0], "offline", line["reason"])
    described = [each.offline_reason for each in sim.operations.log_dirs.describe()]
    assert described == [line["reason"], None]
    labels = {"log_dir": DIRS[0], "reason": line["reason"]}
    sample = sim.metrics.registry.get_sample_value
    assert sample("kafkalog_log_dir_offline_reason", labels) == 1
    assert sample("kafkalog_log_dir_online", {"log_dir": DIRS[0]}) == 0
    assert sample("kafkalog_log_dir_online", {"log_dir": DIRS[1]}) == 1
    served = sim.manager.logs.table.logs_in(kept.log_dir.path)
    assert [log.log_end_offset for log in served] == [3, 3]
    assert not sim.all_dirs_died


def test_refusals_at_the_start() -> None:
    """M14: a held lock, the same partition twice, another node's directory."""
    disk = SimFilesystem()
    disk.make_dir("/data/a")
    disk.hold_lock("/data/a/.lock")
    with pytest.raises(errors.InvalidConfig, match="already using"):
        started(disk)
    disk = SimFilesystem()
    disk.make_dir("/data/a/t-0")
    disk.make_dir("/data/b/t-0")
    with pytest.raises(errors.InvalidConfig, match="Duplicate"):
        started(disk)
    disk = SimFilesystem()
    disk.make_dir("/data/a")
    disk.write_file_atomically("/data/a/meta.properties", b"version=1\nnode.id=7\ncluster.id=x\n")
    with pytest.raises(errors.InvalidConfig, match="node id 7"):
        SimManager(disk, config=BrokerConfig(log_dirs=DIRS, node_id=1)).start()
    assert started(disk).operations.node_id == 7  # none is configured


def bytes_below(disk: SimFilesystem, path: str) -> dict[str, bytes | None]:
    """Every file and directory, the lock aside."""
    found: dict[str, bytes | None] = {}
    for entry in disk.list_dir_stats(path):
        below = f"{path}/{entry.name}"
        if entry.is_dir:
            found[below] = None
            found |= bytes_below(disk, below)
        elif entry.name != ".lock":
            found[below] = disk.read_file(below)
    return found


@pytest.mark.parametrize("damage", ["registry", "duplicate"])
def test_a_refused_start_changes_nothing(damage: str) -> None:
    """M14: the clean-shutdown marker stays, so the next start need not recover."""
    sim = started().with_topic("t", 2)
    disk = sim.stop()
    if damage == "registry":
        for path in DIRS:
            disk.write_file_atomically(f"{path}/kafkalog.registry", b"{")
    else:
        disk.make_dir("/data/a/d-0")
        disk.make_dir("/data/b/d-0")
    before = bytes_below(disk, "/data")
    with pytest.raises(errors.InvalidConfig):
        SimManager(disk, config=BrokerConfig(log_dirs=DIRS, adopt_unknown_topics=True)).start()
    assert bytes_below(disk, "/data") == before
    assert f"/data/a/{MARKER}" in before


def test_corrupt_partition_is_out_of_service_alone() -> None:
    """M14 M15: a damaged message of magic 0 puts its partition offline alone, with the reason."""
    sim = started().with_topic("t", 2)
    sim.produce("t", batch_of("a"))
    sim.produce("t", batch_of("b"), partition=1)
    home = sim.operations.partition_log("t", 0).directory
    disk = sim.stop()
    legacy = disk.open_write(f"{home}/{0:020d}.log")
    legacy.truncate(0)
    legacy.pwrite(legacy_message_set(), 0)
    again = started(disk)
    assert fetched(again, "t", 1) == 1
    with pytest.raises(errors.CorruptBatch, match="v0 or v1"):
        again.operations.partition_log("t", 0)
    assert again.operations.readiness().offline_partitions == 1
    disk = again.stop()
    assert not disk.exists(f"{home.rpartition('/')[0]}/{MARKER}")


def legacy_message_set() -> bytes:
    """Two messages of magic 0 with 20 bytes of value and wrong CRCs: 46 bytes each."""
    body = b"\x00\x00" + (0xFFFFFFFF).to_bytes(4) + (20).to_bytes(4) + b"v" * 20
    message = (crc32(body) ^ 1).to_bytes(4) + body
    return b"".join(offset.to_bytes(8) + len(message).to_bytes(4) + message for offset in range(2))
