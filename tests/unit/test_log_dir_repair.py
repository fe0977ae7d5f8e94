"""Goal: the doctor rebuilds what can be proven, keeps what was there, and asks for the rest.
Method: files of the simulated disk damaged, repaired, and served by the next life of a manager;
the command on a real disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from click.testing import CliRunner

from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.directory.repair import LogDirRepair
from kafkalog.broker.topics.registry import (
    FORMAT,
    RegisteredTopic,
    RegistryState,
    decode_registry,
    encode_registry,
)
from kafkalog.broker.topics.registry_copies import corrected_registry
from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidConfig, UnusableLogDirs
from kafkalog.format.disk.properties import MetaProperties, decode_meta_properties
from kafkalog.format.disk.properties import encode_meta_properties as encoded_meta
from kafkalog.format.topic_names import decode_id, encode_id
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_clock import SimClock
from tests.sim.sim_manager import DIRS, batch_of
from tests.sim.sim_random import SimRandom
from tests.sim.sim_threads import SimThreads
from tests.unit.test_damaged_log_dirs import (
    A,
    B,
    bits_of,
    copy_of,
    directories_of_kafka,
    flip,
    offline,
    served,
    started,
    stopped,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem


def repaired(
    disk: SimFilesystem,
    *log_dirs: str,
    cluster_id: str | None = None,
    dry_run: bool = False,
    seed: int = 9,
) -> tuple[dict[str, str], dict[str, str]]:
    """Messages by file: of what was done, of what could not be."""
    clock = SimClock()
    seams = (disk, clock, SimRandom(seed), SimThreads(clock))
    repair = LogDirRepair(log_dirs, 1, cluster_id, seams)
    try:
        repair.open()
        steps = [step for step, _ in repair.run(dry_run=dry_run)]
    finally:
        repair.close()
    done = {step.file: step.message for step in steps if step.data is not None}
    left = {step.file: step.message for step in steps if step.data is None}
    return done, left


def test_nothing_is_done_where_nothing_is_damaged() -> None:
    """Also not on directories that Kafka wrote, and that no registry knows yet."""
    for disk in (stopped(*DIRS), directories_of_kafka()):
        before = len(disk.operations)
        assert repaired(disk, *DIRS) == ({}, {})
        assert {each.kind for each in disk.operations[before:]} <= {"create"}  # the lock


def test_a_flipped_bit_of_any_registry_is_found() -> None:
    """One flipped bit costs nothing, wherever it is."""
    small = RegistryState(3).with_topics([RegisteredTopic(decode_id("a" * 22), "t", 1)])
    large = small.with_topics(
        RegisteredTopic(
            UUID(int=number + 500, version=4), f"topic-{number}", 3, {"retention.ms": f"{number}"}
        )
        for number in range(60)
    )
    for state, stride in ((small, 3), (large.with_broker_configs({"a": 'b: "c": d'}), 2003)):
        data = encode_registry(state)
        for bit in range(0, 8 * len(data), stride):
            rotten = bytearray(data)
            rotten[bit // 8] ^= 1 << bit % 8
            assert corrected_registry(bytes(rotten)) == state, bit


def test_what_no_flipped_bit_explains_is_not_believed() -> None:
    """Two flipped bits, a cut, nothing at all."""
    data = encode_registry(RegistryState(3, cluster_id="x" * 22, node_id=1))
    for bit in range(0, 8 * len(data) - 40, 61):
        rotten = bytearray(data)
        for each in (bit, bit + 37):
            rotten[each // 8] ^= 1 << each % 8
        assert corrected_registry(bytes(rotten)) is None
    for rotten_all in (b"", data[:50], data[50:], b"\xff" * 99):
        assert corrected_registry(rotten_all) is None


@pytest.mark.parametrize("stride", [211, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_one_bit_of_the_only_registry(stride: int) -> None:
    """Goal: of a daemon with one directory nothing is lost, configs and deleted ids included."""
    base = stopped(A)
    path = f"{A}/{REGISTRY_FILE}"
    whole, expected = base.read_file(path), served(started(copy_of(base), A))
    for bit in bits_of(base, path, stride):
        disk = copy_of(base)
        flip(disk, path, bit)
        damaged = disk.read_file(path)
        done, left = repaired(disk, A)
        assert left == {}
        if done:
            assert disk.read_file(path) == whole
            assert disk.read_file(f"{path}.damaged") == damaged
            assert "nothing is lost" in done[path]
        sim = started(disk, A)
        assert served(sim) == expected
        sim.threads.kill_all()


@pytest.mark.parametrize("content", [b"", b"\0" * 99, None])
def test_the_only_registry_is_lost(content: bytes | None) -> None:
    """Goal: topics come back from their partitions with retention off; it says what is lost.
    Method: the file emptied, zeroed, or a directory in its place; two topics, one compacted.
    """
    sim = started(stopped(A), A)
    sim.operations.topics.create("other", 3)
    assert sim.produce("other", batch_of("w"), partition=2).error is None
    next_id = sim.manager.registry.state.next_producer_id
    ids = {name: topic.topic_id for name, topic in sim.manager.registry.topics.items()}
    disk = sim.stop()
    path = f"{A}/{REGISTRY_FILE}"
    if content is None:
        disk.unlink(path)
        disk.make_dir(path)
    else:
        disk.write_file_atomically(path, content)
    with pytest.raises(UnusableLogDirs):
        started(disk, A)
    disk.kill()
    done, left = repaired(disk, A)
    assert left == {}
    assert "lost: configs of topics" in done[path]
    assert "other, t" in done[path]
    sim = started(disk, A)
    assert {name: topic.topic_id for name, topic in sim.manager.registry.topics.items()} == ids
    assert sim.operations.partition_count("other") == 3
    assert sim.operations.partition_log("other", 2).log_end_offset == 1
    overrides = sim.operations.topics.describe("t").overrides
    assert dict(overrides) == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert sim.manager.registry.state.next_producer_id > next_id
    assert not sim.manager.registry.state.in_making


def test_a_topic_that_only_the_damaged_copy_knew() -> None:
    """It comes back, with the partitions of a growth, and the rest as the older copy has it."""
    sim = started(stopped(*DIRS), *DIRS)
    sim.manager.units[1].log_dir.take_offline("it broke")
    sim.operations.topics.create("new", 1)
    sim.operations.topics.create_partitions("t", 3)
    assert sim.produce("t", batch_of("v"), partition=2).error is None
    disk = sim.stop()
    disk.write_file_atomically(f"{A}/{REGISTRY_FILE}", b"")
    sim = started(disk, *DIRS)
    assert list(offline(sim)) == [A]
    disk = sim.stop()
    done, left = repaired(disk, *DIRS)
    assert left == {}
    assert set(done) == {f"{path}/{REGISTRY_FILE}" for path in DIRS}
    sim = started(disk, *DIRS)
    assert offline(sim) == {}
    assert sim.operations.topic_names() == ["new", "t"]
    assert sim.operations.topics.describe("t").overrides["flush.messages"] == "7"
    assert sim.operations.partition_log("t", 2).log_end_offset == 1


def test_identities() -> None:
    """Goal: the registry proves them, also when it is damaged itself; what nothing proves is asked.
    Method: one directory with both files damaged, then beyond proof, without and with the answer.
    """
    base = stopped(A)
    meta_path, path = f"{A}/{META_PROPERTIES}", f"{A}/{REGISTRY_FILE}"
    meta = decode_meta_properties(base.read_file(meta_path))
    assert meta.directory_id is not None
    disk = copy_of(base)
    flip(disk, path, 1600)
    disk.write_file_atomically(meta_path, b"")
    done, left = repaired(disk, A)
    assert (set(done), left) == ({path, meta_path}, {})
    assert decode_meta_properties(disk.read_file(meta_path)) == meta
    shown = f"directory.id={encode_id(meta.directory_id)}\nversion=9\n".encode()
    for content, is_kept in ((b"", False), (shown, True)):
        disk = copy_of(base)
        for each in (path, meta_path):
            disk.write_file_atomically(each, content)
        done, left = repaired(disk, A)
        assert "--cluster-id" in left[meta_path]
        done, left = repaired(disk, A, cluster_id="x" * 22)
        assert (set(done), left) == ({meta_path}, {})
        found = decode_meta_properties(disk.read_file(meta_path))
        assert (found.cluster_id, found.node_id) == ("x" * 22, 1)
        assert (found.directory_id == meta.directory_id) == is_kept
        sim = started(disk, A)
        assert sim.operations.partition_log("t", 0).log_end_offset == 1


def test_a_file_of_kafka_that_nothing_proves() -> None:
    """Its cluster.id is asked for, with what the other directory has; its directory.id is kept."""
    disk = directories_of_kafka()
    path = f"{A}/{META_PROPERTIES}"
    content = disk.read_file(path)
    meta = decode_meta_properties(content)
    disk.write_file_atomically(path, content.replace(b"version=1", b"version=3"))
    sim = started(disk, *DIRS)
    assert list(offline(sim)) == [A]
    disk = sim.stop()
    assert (
        f"--cluster-id {meta.cluster_id} (what the others have)" in repaired(disk, *DIRS)[1][path]
    )
    done, left = repaired(disk, *DIRS, cluster_id=meta.cluster_id)
    assert (set(done), left) == ({path}, {})
    assert decode_meta_properties(disk.read_file(path)) == meta
    assert offline(started(disk, *DIRS)) == {}


def test_a_dry_run_writes_nothing() -> None:
    """The same steps, and the files as they were."""
    disk = stopped(*DIRS)
    for name in (REGISTRY_FILE, META_PROPERTIES):
        disk.write_file_atomically(f"{A}/{name}", b"{")
    before = {path: disk.list_dir(path) for path in DIRS}
    shown = repaired(disk, *DIRS, dry_run=True)
    assert {path: disk.list_dir(path) for path in DIRS} == before
    assert disk.read_file(f"{A}/{REGISTRY_FILE}") == b"{"
    assert repaired(disk, *DIRS) == shown


def test_directories_that_do_not_belong_together_are_left_alone() -> None:
    """Of two clusters, of two histories, of a newer version, in use: refused, nothing written."""
    disk = stopped(*DIRS)
    whole = disk.read_file(f"{B}/{REGISTRY_FILE}")
    state = decode_registry(whole)
    others = {
        "different histories": encode_registry(
            RegistryState(state.generation, cluster_id=state.cluster_id)
        ),
        "different clusters": encode_registry(RegistryState(99, cluster_id="x" * 22)),
    }
    third = "/data/c"
    disk.make_dir(third)
    disk.write_file_atomically(f"{A}/{REGISTRY_FILE}", b"{")
    for reason, content in others.items():
        disk.write_file_atomically(f"{third}/{REGISTRY_FILE}", content)
        done, left = repaired(disk, *DIRS, third)
        assert done == {}
        assert any(reason in message for message in left.values())
    disk.write_file_atomically(f"{third}/{REGISTRY_FILE}", b'{"format": %d}' % (FORMAT + 1))
    with pytest.raises(UnusableLogDirs, match="newer version"):
        repaired(disk, *DIRS, third)
    disk.hold_lock(f"{B}/.lock")
    with pytest.raises(InvalidConfig, match="already using"):
        repaired(disk, *DIRS)
    assert disk.read_file(f"{A}/{REGISTRY_FILE}") == b"{"


@dataclass
class Nothing:
    """The repair promises nothing before it ends."""


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_repair_that_is_cut_off_is_run_again(stride: int) -> None:
    """Goal: no crash within it leaves less than was there.
    Method: power cut in a repair of both files of the only directory; again.
    """
    base = stopped(A)
    expected = served(started(copy_of(base), A))
    for name in (REGISTRY_FILE, META_PROPERTIES):
        flip(base, f"{A}/{name}", 1000 if name == REGISTRY_FILE else 400)
    base.sync_all()

    def check(disk: SimFilesystem, _: Nothing, point: CrashPoint) -> None:
        assert repaired(disk, A)[1] == {}
        sim = started(disk, A)
        assert served(sim) == expected
        sim.threads.kill_all()

    count = enumerate_crashes(
        Nothing,
        lambda disk, _: repaired(disk, A) and None,
        check,
        new_disk=lambda: copy_of(base),
        seeds=1,
        stride=stride,
    )
    assert count > 10


def on_a_real_disk(root: Path) -> tuple[Path, Path]:
    """Two directories with registry and identity."""
    ids = [decode_id(f"{letter}" + "a" * 21) for letter in "bc"]
    paths = root / "a", root / "b"
    state = RegistryState(
        7, log_dirs=dict(zip(ids, map(str, paths), strict=True)), cluster_id="x" * 22, node_id=1
    )
    for directory_id, path in zip(ids, paths, strict=True):
        path.mkdir()
        (path / REGISTRY_FILE).write_bytes(encode_registry(state))
        meta = MetaProperties("x" * 22, 1, directory_id)
        (path / META_PROPERTIES).write_bytes(encoded_meta(meta, 0))
    return paths


def test_the_command(tmp_path: Path) -> None:
    """Goal: doctor tells of damage with the remedy; --repair mends it; both exits and both outputs.
    Method: two real directories, one file of each damaged; then a lock that is held.
    """
    first, second = on_a_real_disk(tmp_path)
    source = ["--override", f"log.dirs={first},{second}", "--override", "node.id=1"]
    damaged = first / REGISTRY_FILE
    damaged.write_bytes(b"{")
    run = CliRunner().invoke
    shown = run(make_cli(), ["doctor", *source])
    assert f"warning: {damaged}: it is damaged" in shown.output
    assert f"kafkalog doctor --repair --override log.dirs={first},{second}" in shown.output
    dry = run(make_cli(), ["doctor", "--repair", "--dry-run", "--output", "json", *source])
    (finding,) = json.loads(dry.stdout)
    assert (dry.exit_code, finding["level"], finding["subject"]) == (0, "info", str(damaged))
    assert finding["message"].startswith("would be repaired: ")
    assert damaged.read_bytes() == b"{"
    done = run(make_cli(), ["doctor", "--repair", *source])
    assert done.exit_code == 0
    assert f"the former file is {damaged}.damaged" in done.output
    assert damaged.read_bytes() == (second / REGISTRY_FILE).read_bytes()
    assert (first / f"{REGISTRY_FILE}.damaged").read_bytes() == b"{"
    assert run(make_cli(), ["doctor", "--repair", *source]).output == "Nothing was found.\n"
    lock = SystemFilesystem().lock(str(second / ".lock"))
    in_use = run(make_cli(), ["doctor", "--repair", *source])
    lock.release()
    assert in_use.exit_code == 1
    assert "already using this directory" in in_use.output
    assert run(make_cli(), ["doctor", "--dry-run", *source]).exit_code == 2
    (first / META_PROPERTIES).write_bytes(b"")
    (first / REGISTRY_FILE).write_bytes(b"")
    (second / REGISTRY_FILE).write_bytes(b"")
    hopeless = run(make_cli(), ["doctor", *source])
    assert hopeless.exit_code == 1
    assert f"error: {first}: " in hopeless.output
