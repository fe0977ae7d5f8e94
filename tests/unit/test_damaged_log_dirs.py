"""Goal: rot in a registry or a meta.properties costs no directory its service where others prove
what was there, and never another directory's.
Method: bits and whole files of the simulated disk changed between two lives of a manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.manager.broker_config import BrokerConfig
from kafkalog.manager.log_dir import META_PROPERTIES, REGISTRY_FILE
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.sim_filesystem import SimFilesystem

A, B = DIRS
FILES = (REGISTRY_FILE, META_PROPERTIES)
CONFIGS = {"retention.ms": "-1", "flush.messages": "7"}


def stopped(*log_dirs: str, clean: bool = True) -> SimFilesystem:
    """Topic t with one partition and one record for each directory; a deleted topic; an id."""
    sim = SimManager(config=BrokerConfig(log_dirs=log_dirs)).start()
    sim.operations.topics.create("gone", 1)
    sim.operations.topics.create("t", len(log_dirs), CONFIGS)
    sim.operations.topics.delete("gone")
    sim.operations.producers.allocate()
    for partition in range(len(log_dirs)):
        assert sim.produce("t", batch_of("v"), partition=partition).error is None
    sim = SimManager(sim.stop(), config=BrokerConfig(log_dirs=log_dirs), seed=1).start()
    disk = sim.stop() if clean else sim.kill()
    disk.sync_all()
    return disk


def copy_of(disk: SimFilesystem) -> SimFilesystem:
    """All is durable: a power cut takes nothing."""
    return disk.crash(CrashMode.DROP_ALL)


def started(disk: SimFilesystem, *log_dirs: str) -> SimManager:
    return SimManager(disk, config=BrokerConfig(log_dirs=log_dirs), seed=2).start()


def flip(disk: SimFilesystem, path: str, bit: int) -> None:
    """One bit of a file, in place."""
    data = bytearray(disk.read_file(path))
    data[bit // 8] ^= 1 << bit % 8
    disk.write_file_atomically(path, bytes(data))


def served(sim: SimManager) -> tuple[object, ...]:
    """What clients see: configs, records, and what may never be forgotten."""
    topic = sim.operations.topics.describe("t")
    state = sim.manager.registry.state
    ends = [
        sim.operations.partition_log("t", number).log_end_offset
        for number in range(topic.partition_count)
    ]
    identities = [unit.log_dir.meta for unit in sim.manager.units]
    return (
        sim.operations.topic_names(),
        dict(topic.overrides),
        ends,
        state.deleted,
        state.next_producer_id,
        state.log_dirs,
        sim.manager.cluster_id,
        identities,
    )


def faults_of_a_bit(base: SimFilesystem, path: str, bits: range) -> Iterator[str]:
    """Where one flipped bit of ``path`` is seen by somebody."""
    expected = served(started(copy_of(base), *DIRS))
    for bit in bits:
        disk = copy_of(base)
        flip(disk, path, bit)
        try:
            found = served(started(disk, *DIRS))
        except KafkalogError as error:
            yield f"bit {bit}: {error.message[:90]}"
            continue
        if found != expected:
            yield f"bit {bit}: {found}"


@pytest.mark.xfail(strict=True, reason="one bit stops a daemon whose other directory is whole")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_one_bit_of_one_of_two_directories(name: str, clean: bool) -> None:
    """Every 37th bit."""
    base = stopped(*DIRS, clean=clean)
    path = f"{A}/{name}"
    bits = range(0, 8 * len(base.read_file(path)), 37)
    assert list(faults_of_a_bit(base, path, bits)) == []


@pytest.mark.xfail(strict=True, reason="a damaged file stops a daemon, not its directory alone")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_cut_or_emptied_file_of_one_of_two_directories(name: str, cut: int) -> None:
    """Empty, half of it, zeros."""
    base = stopped(*DIRS)
    expected = served(started(copy_of(base), *DIRS))
    data = base.read_file(f"{A}/{name}")
    content = (b"", data[: len(data) // 2], bytes(len(data)))[cut]
    base.write_file_atomically(f"{A}/{name}", content)
    assert served(started(base, *DIRS)) == expected
