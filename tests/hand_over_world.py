"""Log directories as each kind of Kafka leaves them, on a simulated disk; and what takes them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import META_PROPERTIES, PROOFS, REGISTRY_FILE
from kafkalog.broker.startup.hand_over import HandOver
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import decode_properties
from tests.sim.sim_clock import SimClock
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import DIRS, SimManager, batch_of
from tests.sim.sim_random import SimRandom
from tests.sim.sim_threads import SimThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.startup.hand_over import HandOverPlan

NODE_ID = 5
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPICS = {"orders": 3, "users": 1}


@dataclass(frozen=True)
class Kind:
    """A Kafka: the lines of its meta.properties, and whether its topics have ids."""

    name: str
    meta: bytes
    has_topic_ids: bool = True
    has_metadata_log: bool = False
    is_clean: bool = True


KINDS = {
    kind.name: kind
    for kind in (
        Kind("1.1", b"#\n#Mon\nversion=0\nbroker.id=5\n", has_topic_ids=False),
        Kind("2.8", b"cluster.id=%s\nversion=0\nbroker.id=5\n" % CLUSTER.encode()),
        Kind(
            "3.5",
            b"cluster.id=%s\nversion=1\nnode.id=5\n" % CLUSTER.encode(),
            has_metadata_log=True,
            is_clean=False,
        ),
        Kind(
            "3.9",
            b"cluster.id=%s\nversion=1\nnode.id=5\ndirectory.id=%%s\n" % CLUSTER.encode(),
            has_metadata_log=True,
        ),
    )
}
DIRECTORY_IDS = (b"6mUgYtLgQnaAuYPRfbYYAA", b"kOoGf2KUSDCqUJVYVZV5dA")


@functools.cache
def files_of(name: str) -> dict[str, bytes | None]:
    """Every path that a Kafka left, with three records in each partition; None: a directory."""
    kind = KINDS[name]
    sim = SimManager().start()
    for topic, count in TOPICS.items():
        sim.with_topic(topic, count)
        for partition in range(count):
            for number in range(3):
                sim.produce(topic, batch_of(f"{topic} {partition} {number}"), partition=partition)
    disk = sim.stop() if kind.is_clean else sim.kill()
    found: dict[str, bytes | None] = {}
    for path, directory_id in zip(DIRS, DIRECTORY_IDS, strict=True):
        found[path] = None
        if kind.has_metadata_log:
            found[f"{path}/__cluster_metadata-0"] = None
        meta = kind.meta % directory_id if b"%s" in kind.meta else kind.meta
        found[f"{path}/{META_PROPERTIES}"] = meta
        for entry in disk.list_dir_stats(path):
            if entry.is_dir:
                found[f"{path}/{entry.name}"] = None
            elif entry.name not in (REGISTRY_FILE, PROOFS, META_PROPERTIES):
                found[f"{path}/{entry.name}"] = disk.read_file(f"{path}/{entry.name}")
        for directory in partition_names(disk, path):
            for each in disk.list_dir(f"{path}/{directory}"):
                if kind.has_topic_ids or each != PARTITION_METADATA:
                    file = f"{path}/{directory}/{each}"
                    found[file] = disk.read_file(file)
    return found


def left_by(name: str) -> SimFilesystem:
    """A disk with what a Kafka left."""
    disk = SimFilesystem()
    for path, data in files_of(name).items():
        if data is None:
            disk.make_dir(path)
        else:
            disk.write_file_atomically(path, data)
    disk.sync_all()
    return disk


def copy_of(disk: SimFilesystem) -> SimFilesystem:
    """All is durable: a power cut takes nothing."""
    return disk.crash(CrashMode.DROP_ALL)


def partition_names(disk: SimFilesystem, path: str) -> list[str]:
    return [
        each.name
        for each in disk.list_dir_stats(path)
        if each.is_dir and each.name.rpartition("-")[0] in TOPICS
    ]


def hand_over(
    disk: SimFilesystem,
    plan_of: Callable[[HandOver], HandOverPlan],
    *,
    is_executed: bool,
    seed: int = 0,
    log_dirs: tuple[str, ...] = DIRS,
) -> HandOverPlan:
    clock = SimClock()
    seams = (disk, clock, SimRandom(seed), SimThreads(clock, seed))
    return HandOver(log_dirs, seams).run(plan_of, is_executed=is_executed)


def log_bytes(disk: SimFilesystem) -> dict[str, bytes]:
    """Every .log file by path."""
    return {
        file: disk.read_file(file)
        for path in DIRS
        for name in partition_names(disk, path)
        for entry in disk.list_dir(f"{path}/{name}")
        if entry.endswith(".log")
        for file in [f"{path}/{name}/{entry}"]
    }


def check_as_left(disk: SimFilesystem, kind: str) -> None:
    """What a broker compares: its own ids, equal files in all directories, the topics' ids."""
    left = files_of(kind)
    for path in DIRS:
        file = f"{path}/{META_PROPERTIES}"
        assert decode_properties(disk.read_file(file)) == decode_properties(left[file] or b"")
        for name in partition_names(disk, path):
            metadata = f"{path}/{name}/{PARTITION_METADATA}"
            kept = disk.read_file(metadata) if disk.exists(metadata) else None
            assert kept == left.get(metadata)
    check_logs(disk, kind)


def check_adopted(disk: SimFilesystem, kind: str) -> None:
    """What Kafka wrote is there; from 3.7 on nothing was added."""
    left = files_of(kind)
    for path in DIRS:
        file = f"{path}/{META_PROPERTIES}"
        found = decode_properties(disk.read_file(file))
        if kind != "3.9":
            found.pop("kafkalog.dir.id", None)
        assert found == decode_properties(left[file] or b"")
    check_logs(disk, kind)


def check_logs(disk: SimFilesystem, kind: str) -> None:
    left, logs = files_of(kind), log_bytes(disk)
    assert {file: data for file, data in logs.items() if file in left} == {
        file: data for file, data in left.items() if file.endswith(".log")
    }


def started(disk: SimFilesystem, seed: int = 3) -> SimManager:
    return SimManager(disk, seed=seed, config=BrokerConfig(log_dirs=DIRS)).start()


def check_serves(sim: SimManager) -> None:
    """Every topic and record, under Kafka's own node id."""
    assert sim.operations.node_id == NODE_ID
    assert sim.operations.topic_names() == sorted(TOPICS)
    for topic, count in TOPICS.items():
        assert sim.operations.topics.describe(topic).partition_count == count
        for partition in range(count):
            assert sim.operations.partition_log(topic, partition).log_end_offset == 3
