"""Goal: rot in a registry or a meta.properties costs no directory its service where others prove
what was there, and no log directory is inside another one.
Method: bytes changed between two lives; links and paths of every kind.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.identity import IdentityFiles, plan_identities
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.topics.registry import FORMAT, decode_registry, encode_registry
from kafkalog.broker.topics.registry_copies import doubt_of
from kafkalog.broker.values import ConfigChange
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidBackupTarget, InvalidConfig, LogDirOffline, UnusableLogDirs
from kafkalog.format.disk.backup_manifest import RESTORE_MARKER
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import decode_meta_properties, encode_meta_properties
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import encode_id
from kafkalog.log.inspect.directory_facts import check_apart, lies_in
from tests.backup_world import BACKUP, backed_up, new_disk, restore, with_data
from tests.sim.crash_enumeration import enumerate_crashes
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Fault
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem


A, B = DIRS
FILES = (REGISTRY_FILE, META_PROPERTIES)
ONLY = f"{A}/{REGISTRY_FILE}"
CONFIGS = {"retention.ms": "-1", "flush.messages": "7"}


def stopped(*log_dirs: str, clean: bool = True) -> SimFilesystem:
    """Topic t with one partition and one record for each directory; a deleted topic; an id."""
    sim = SimManager(config=BrokerConfig(log_dirs=log_dirs)).start().with_topic("gone", 1)
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


def flipped(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip(disk: SimFilesystem, path: str, bit: int) -> None:
    disk.write_file_atomically(path, flipped(disk.read_file(path), bit))


def served(sim: SimManager) -> tuple[object, ...]:
    """What clients see: configs, records, and what may never be forgotten."""
    topic = sim.operations.topics.describe("t")
    state = sim.manager.registry.state
    ends = [
        sim.operations.partition_log("t", number).log_end_offset
        for number in range(topic.partition_count)
    ]
    identities = [unit.log_dir.meta for unit in sim.manager.logs.units]
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


def starts_of_a_bit(
    base: SimFilesystem, path: str, bits: range, *log_dirs: str
) -> Iterator[tuple[int, object]]:
    """What each flipped bit makes of a start: what is served, or the refusal."""
    for bit in bits:
        disk = copy_of(base)
        flip(disk, path, bit)
        try:
            yield bit, served(started(disk, *log_dirs))
        except UnusableLogDirs as error:
            yield bit, error


def bits_of(disk: SimFilesystem, path: str, stride: int) -> range:
    return range(0, 8 * len(disk.read_file(path)), stride)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stride", [101, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("victim", DIRS)
def test_one_bit_of_one_of_two_directories(
    victim: str, name: str, clean: bool, stride: int
) -> None:
    """Some bits, or each; all were refusals but those of a comment and of white space."""
    base = stopped(*DIRS, clean=clean)
    path = f"{victim}/{name}"
    expected = served(started(copy_of(base), *DIRS))
    found = list(starts_of_a_bit(base, path, bits_of(base, path, stride), *DIRS))
    assert [each for each in found if each[1] != expected] == []


def test_one_bit_of_the_only_meta_properties() -> None:
    """Every 13th bit: the directory's own registry proves it."""
    base = stopped(A)
    path = f"{A}/{META_PROPERTIES}"
    expected = served(started(copy_of(base), A))
    found = list(starts_of_a_bit(base, path, bits_of(base, path, 13), A))
    assert [each for each in found if each[1] != expected] == []


def test_any_bit_of_a_registry_beside_a_whole_one() -> None:
    """Each leaves enough to see that it was that copy, or is none (it reads as before)."""
    data = stopped(*DIRS).read_file(ONLY)
    state = decode_registry(data)
    older = replace(state, generation=state.generation - 1)
    for bit in range(8 * len(data)):
        rotten = flipped(data, bit)
        assert doubt_of(rotten, state, ["/away"], []) is None, bit
        assert doubt_of(rotten, older, ["/away"], []) is not None, bit


def test_any_bit_of_a_meta_properties_that_the_registry_knows() -> None:
    """As above for each bit, in our order of the lines and in Kafka's."""
    base = stopped(A)
    content = base.read_file(f"{A}/{META_PROPERTIES}")
    meta, state = decode_meta_properties(content), decode_registry(base.read_file(ONLY))
    lines = content.splitlines(keepends=True)
    for data in (content, b"".join([*lines[:2], *reversed(lines[2:])])):
        assert decode_meta_properties(data) == meta
        for bit in range(8 * len(data)):
            try:
                read = IdentityFiles(A, decode_meta_properties(flipped(data, bit)), None, state)
            except FormatError as error:
                read = IdentityFiles(A, None, str(error), state)
            plan = plan_identities([read], 1, lambda _path, _state: ())
            kept = plan.meta[A][0] if A in plan.meta else read.meta
            assert (kept, plan.unproven) == (meta, {}), bit


def test_one_bit_of_the_only_registry() -> None:
    """Every 101st bit: refused with the remedy, but for a bit that changes nothing."""
    base = stopped(A)
    path = f"{A}/{REGISTRY_FILE}"
    expected = served(started(copy_of(base), A))
    refused = 0
    for _, found in starts_of_a_bit(base, path, bits_of(base, path, 101), A):
        if isinstance(found, UnusableLogDirs):
            refused += 1
            assert f"{path} is damaged" in found.message
            command = f"kafkalog doctor --repair --override log.dirs={A} --override node.id=1"
            assert f"Remedy: {command} ." in found.message
        else:
            assert found == expected
    assert refused > 20


def damaged_as(data: bytes, how: str) -> bytes:
    return {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "zeros": bytes(len(data)),
        "other": b"version=7\n",
        "text": data.decode().encode("utf-16"),
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut", "zeros", "other", "text", "directory", "missing"])
@pytest.mark.parametrize("names", [FILES[:1], FILES[1:], FILES])
def test_whole_files_of_one_of_two_directories(names: tuple[str, ...], how: str) -> None:
    base = stopped(*DIRS)
    expected = served(started(copy_of(base), *DIRS))
    kept: dict[str, bytes] = {}
    for name in names:
        path = f"{A}/{name}"
        content = base.read_file(path)
        if how in ("directory", "missing"):
            base.unlink(path)
        if how == "directory":
            base.make_dir(path)
        elif how != "missing":
            kept[path] = damaged_as(content, how)
            base.write_file_atomically(path, kept[path])
    with capture_logs() as lines:
        sim = started(base, *DIRS)
    assert served(sim) == expected if names != FILES or how != "missing" else True
    told = [line["file"] for line in lines if line["event"].endswith("_repaired")]
    if how != "missing":
        assert sorted(told) == sorted(f"{A}/{name}" for name in names)
        for name in names:
            counted = sim.metrics.log_dir_files_repaired.labels(A, name)
            assert counted._value.get() == 1
    for path, content in kept.items():
        assert base.read_file(f"{path}.damaged") == content
    with capture_logs() as lines:
        assert served(started(sim.stop(), *DIRS)) == served(sim)
    assert not [line for line in lines if line["log_level"] == "error"]


def offline(sim: SimManager) -> dict[str, str]:
    return {
        unit.log_dir.path: str(unit.log_dir.offline_reason)
        for unit in sim.manager.logs.units
        if not unit.log_dir.is_online
    }


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read(name: str) -> None:
    disk = stopped(*DIRS)
    before = disk.read_file(f"{A}/{name}")
    fault = Fault(error=errno.EIO, kinds=frozenset({"read"}), path_contains=f"{A}/{name}")
    disk.faults.add(fault)
    sim = started(disk, *DIRS)
    assert list(offline(sim)) == [A]
    assert disk.read_file(f"{A}/{name}") == before


def test_a_copy_that_may_be_newer_is_not_overwritten() -> None:
    sim = started(stopped(*DIRS), *DIRS)
    old = sim.manager.registry.state.generation
    sim.manager.logs.units[1].log_dir.take_offline("it broke")
    sim.operations.topics.create("new", 1)
    disk = sim.stop()
    disk.sync_all()
    path = f"{A}/{REGISTRY_FILE}"
    newest = decode_registry(disk.read_file(path))
    assert newest.generation > old
    for damage in (
        lambda data: data.replace(b'"new"', b'"nev"'),
        lambda data: data.replace(b'"checksum"', b'"checksun"')[:-20],
        lambda data: b"",
    ):
        copy = copy_of(disk)
        data = damage(disk.read_file(path))
        copy.write_file_atomically(path, data)
        sim = started(copy, *DIRS)
        assert list(offline(sim)) == [A]
        assert "kafkalog doctor --repair" in offline(sim)[A]
        assert copy.read_file(path) == data
        assert sim.operations.topic_names() == ["t"]
        assert sim.manager.logs.faults_of(sim.manager.logs.registered("t")).keys() == {
            number for number in range(2) if copy.exists(f"{A}/t-{number}")
        }


def test_an_older_damaged_copy_is_overwritten() -> None:
    disk = stopped(*DIRS)
    sim = started(disk, B)
    sim.operations.topics.alter_configs("t", [ConfigChange("flush.messages", "9")])
    disk = sim.stop()
    flip(disk, f"{A}/{REGISTRY_FILE}", 800)
    sim = started(disk, *DIRS)
    assert offline(sim) == {}
    assert sim.operations.topics.describe("t").overrides["flush.messages"] == "9"


def test_a_remembered_directory_that_is_away_may_have_the_newest_copy() -> None:
    """Of three one is away and one has lost its registry whole: the latter stays out of service."""
    third = "/data/c"
    disk = stopped(*DIRS, third)
    disk.write_file_atomically(f"{A}/{REGISTRY_FILE}", b"")
    sim = started(disk, *DIRS)
    assert "/data/c may have a newer copy" in offline(sim)[A]
    assert sim.manager.logs.online_units


def test_damage_in_all_directories_is_refused() -> None:
    for name, reason in ((REGISTRY_FILE, "no JSON"), (META_PROPERTIES, "no version")):
        disk = stopped(*DIRS)
        for path in DIRS:
            for damaged in {name, REGISTRY_FILE}:
                disk.write_file_atomically(f"{path}/{damaged}", b"{")
        with pytest.raises(UnusableLogDirs, match="kafkalog doctor --repair") as refused:
            started(disk, *DIRS)
        for path in DIRS:
            assert f"{path}/{name} is damaged" in refused.value.message
            assert disk.exists(f"{path}/.kafka_cleanshutdown")
        assert reason in refused.value.message


@pytest.mark.parametrize("names", [FILES[:1], FILES])
def test_damage_beside_a_fresh_directory_is_refused(names: tuple[str, ...]) -> None:
    disk = stopped(A)
    for name in names:
        disk.write_file_atomically(f"{A}/{name}", b"{")
    with pytest.raises(UnusableLogDirs, match="no log directory has a whole copy"):
        started(disk, *DIRS)
    disk = directories_of_kafka()
    disk.remove_tree(B)
    disk.write_file_atomically(f"{A}/{META_PROPERTIES}", b"{")
    with pytest.raises(UnusableLogDirs, match="no registry of another log directory"):
        started(disk, *DIRS)
    assert not disk.exists(f"{B}/{META_PROPERTIES}")


def test_a_newer_registry_is_not_damaged() -> None:
    """Only the version that wrote it understands it; a format that rotted is put right."""
    disk = stopped(*DIRS)
    disk.write_file_atomically(f"{A}/{REGISTRY_FILE}", b'{"format": %d}' % (FORMAT + 1))
    with pytest.raises(UnusableLogDirs, match="newer version"):
        started(disk, *DIRS)


@pytest.mark.parametrize("file", [META_PROPERTIES, REGISTRY_FILE, None])
def test_a_directory_of_another_cluster_is_refused(file: str | None) -> None:
    ours, theirs = stopped(*DIRS), stopped(B)
    sim = SimManager(theirs, config=BrokerConfig(log_dirs=(B,)), seed=5).start()
    for number in range(5):
        sim.operations.topics.create(f"x{number}", 1)
    theirs = sim.stop()
    names = (META_PROPERTIES, REGISTRY_FILE)
    for name in names:
        content = theirs.read_file(f"{B}/{name}")
        if name == META_PROPERTIES:
            meta = decode_meta_properties(content)
            other = replace(meta, cluster_id="x" * 22, directory_id=UUID(int=1 << 99))
            content = encode_meta_properties(other, 0)
        else:
            state = decode_registry(content)
            state = replace(
                state, cluster_id="x" * 22, log_dirs=MappingProxyType({UUID(int=1 << 99): B})
            )
            content = encode_registry(state)
        ours.write_file_atomically(f"{B}/{name}", b"{" if name == file else content)
    before = {f"{path}/{name}": ours.read_file(f"{path}/{name}") for path in DIRS for name in names}
    if file == META_PROPERTIES:
        sim = started(ours, *DIRS)
        assert list(offline(sim)) == [B]
    else:
        with pytest.raises(UnusableLogDirs, match="different clusters"):
            started(ours, *DIRS)
    for path in (f"{B}/{name}" for name in names):
        assert ours.read_file(path) == before[path]


def test_the_directory_of_another_node_is_refused() -> None:
    disk = stopped(*DIRS)
    config = BrokerConfig(log_dirs=DIRS, node_id=7)
    with pytest.raises(UnusableLogDirs, match="node id 1"):
        SimManager(disk, config=config).start()


@dataclass
class Life:
    """What a start was told, if it came that far."""

    is_done: bool = False


# Of the calls at which the power is cut: each, or some.
STRIDES = pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])


@STRIDES
def test_a_repair_that_is_cut_off_is_done_again(stride: int) -> None:
    base = stopped(*DIRS)
    expected = served(started(copy_of(base), *DIRS))
    damaged = {}
    for name in FILES:
        flip(base, f"{A}/{name}", 400)
        damaged[name] = base.read_file(f"{A}/{name}")
    base.sync_all()

    def work(disk: SimFilesystem, life: Life) -> None:
        sim = SimManager(disk, config=BrokerConfig(log_dirs=DIRS), seed=2)
        try:
            sim.start()
            life.is_done = True
        finally:
            sim.threads.kill_all()

    def check(disk: SimFilesystem, life: Life, point: CrashPoint) -> None:
        sim = started(disk, *DIRS)
        assert served(sim) == expected
        for name, data in damaged.items():
            kept = [disk.read_file(f"{A}/{each}") for each in disk.list_dir(A) if ".dam" in each]
            assert data in kept
            assert disk.list_dir(A).count(f"{name}.damaged.2") == 0
        sim.threads.kill_all()

    count = enumerate_crashes(
        Life, work, check, new_disk=lambda: copy_of(base), seeds=1, stride=stride
    )
    assert count > 20


@STRIDES
def test_an_answered_change_is_in_every_copy(stride: int) -> None:
    base = stopped(*DIRS)
    sim = started(copy_of(base), *DIRS)
    sim.threads.kill_all()
    calls = len(sim.disk.operations)

    def work(disk: SimFilesystem, life: Life) -> None:
        sim = SimManager(disk, config=BrokerConfig(log_dirs=DIRS), seed=2)
        try:
            sim.start()
            sim.operations.topics.alter_configs("t", [ConfigChange("flush.messages", "9")])
            life.is_done = True
        finally:
            sim.threads.kill_all()

    def check(disk: SimFilesystem, life: Life, point: CrashPoint) -> None:
        for path in DIRS:
            cut = copy_of(disk)
            cut.write_file_atomically(f"{path}/{REGISTRY_FILE}", b"")
            sim = started(cut, *DIRS)
            value = sim.operations.topics.describe("t").overrides["flush.messages"]
            assert value in (("9",) if life.is_done else ("7", "9"))
            assert offline(sim) == {}
            sim.threads.kill_all()

    count = enumerate_crashes(
        Life, work, check, new_disk=lambda: copy_of(base), seeds=1, first=calls, stride=stride
    )
    assert count > 10


KAFKAS = b"#\n#Mon Nov 23 10:00:00 UTC 2026\n%sversion=1\n"
KAFKAS_KEYS = b"directory.id=%s\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n"


def directories_of_kafka() -> SimFilesystem:
    """As kafka-storage formats two, each with a partition: no registry is there."""
    disk = stopped(*DIRS)
    for number, path in enumerate(DIRS):
        disk.unlink(f"{path}/{REGISTRY_FILE}")
        directory_id = encode_id(UUID(int=(number + 1) << 90, version=4)).encode()
        content = KAFKAS % (KAFKAS_KEYS % directory_id)
        disk.write_file_atomically(f"{path}/{META_PROPERTIES}", content)
    disk.sync_all()
    return disk


def test_each_bit_of_a_file_of_kafka_that_nothing_proves() -> None:
    base = directories_of_kafka()
    path = f"{A}/{META_PROPERTIES}"
    other = decode_meta_properties(base.read_file(f"{B}/{META_PROPERTIES}"))
    meta = decode_meta_properties(base.read_file(path))
    refusals: list[str] = []
    for bit in bits_of(base, path, 11):
        disk = copy_of(base)
        flip(disk, path, bit)
        damaged = disk.read_file(path)
        try:
            sim = started(disk, *DIRS)
        except UnusableLogDirs as error:
            refusals.append(error.message)
            continue
        assert sim.manager.cluster_id == other.cluster_id
        assert disk.read_file(path) == damaged
        if not offline(sim):
            found = sim.manager.logs.units[0].log_dir.meta
            assert found is not None
            assert (found.cluster_id, found.node_id) == (meta.cluster_id, meta.node_id)
    assert all("different clusters" in each or "node id" in each for each in refusals)


def test_each_bit_of_an_adopted_file_of_kafka() -> None:
    """Every 11th bit, once a start has noted what the files say: written as Kafka's ids."""
    base = started(directories_of_kafka(), *DIRS).stop()
    base.sync_all()
    path = f"{A}/{META_PROPERTIES}"
    expected = served(started(copy_of(base), *DIRS))[-2:]
    for bit, found in starts_of_a_bit(base, path, bits_of(base, path, 11), *DIRS):
        assert isinstance(found, tuple), (bit, found)
        assert found[-2:] == expected, bit


@pytest.mark.parametrize(
    ("log_dirs", "why"),
    [
        (("/data", "/data/a"), "names /data/a, which lies in /data:"),
        (("/data/a", "/data"), "names /data/a, which lies in /data:"),
        (("/data/b", "/data/a/t-0/x", "/data/a"), "names /data/a/t-0/x, which lies in /data/a:"),
        (("/", "/data/a"), "names /data/a, which lies in /:"),
        (("/data/a", "/data//a"), "names /data/a twice: as /data//a"),
    ],
)
def test_a_log_directory_in_another_one_refuses_the_start(
    log_dirs: tuple[str, ...], why: str
) -> None:
    sim = SimManager(new_disk(), config=BrokerConfig(log_dirs=log_dirs))
    before = list(sim.disk.operations)
    with pytest.raises(InvalidConfig, match=why):
        sim.start()
    assert sim.disk.operations == before


def test_a_partition_refuses_the_start(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / PARTITION_METADATA).write_text("version: 0\n")
    (tmp_path / "link").symlink_to(partition)
    for path in (partition, tmp_path / "link"):
        with pytest.raises(InvalidConfig, match=f"names {path}, which is the directory of a part"):
            check_apart(SystemFilesystem(), (str(tmp_path / "apart"), str(path)))
    check_apart(SystemFilesystem(), (str(tmp_path),))


def test_a_backup_refuses_the_start() -> None:
    """``log-dir-0`` reads like a partition of a topic; it shares files with a daemon."""
    disk, _ = backed_up()
    operations = list(disk.operations)
    for path in (BACKUP, f"{BACKUP}/log-dir-0"):
        sim = SimManager(disk, config=BrokerConfig(log_dirs=(path,)))
        with pytest.raises(InvalidConfig, match=f"names {path}, .*kafkalog restore {BACKUP} --to"):
            sim.start()
    assert disk.operations == operations
    check_apart(disk, (BACKUP.rpartition("/")[0] + "/other",))


def test_a_file_in_the_place_of_a_log_directory() -> None:
    """The last word of the start names it, and no disk to repair."""
    disk = new_disk()
    disk.make_dir("/etc")
    disk.open_write("/etc/passwd").close()
    sim = SimManager(disk, config=BrokerConfig(log_dirs=("/etc/passwd",)))
    why = "none of the specified log dirs can be used: .*/etc/passwd .* it is a file or lies below"
    with capture_logs() as lines, pytest.raises(LogDirOffline, match=why):
        sim.start()
    (offline,) = [line for line in lines if line["event"] == "log_dir_offline"]
    assert "name another in log.dirs" in offline["remedy"]


def test_names_that_begin_alike_are_apart() -> None:
    check_apart(new_disk(), ("/data/a", "/data/ab", "/data/a-0", "/dat"))
    assert lies_in("/data/a", "/data/a")
    assert lies_in("/data/a", "/")


def test_links_do_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "to-inner").symlink_to(tmp_path / "a" / "inner")
    (tmp_path / "to-a").symlink_to(tmp_path / "a")
    for other, why in (("to-inner", "lies in"), ("to-a", "twice"), ("to-a/deep/deeper", "lies in")):
        paths = [str(tmp_path / "a"), str(tmp_path / other)]
        with pytest.raises(InvalidConfig, match=why):
            check_apart(SystemFilesystem(), paths)


@pytest.mark.parametrize("target", [f"{DIRS[0]}/new", f"{DIRS[1]}/orders-0/new"])
def test_no_restore_into_a_log_directory(target: str) -> None:
    disk, _ = backed_up()
    disk.make_dir(target.rpartition("/")[0])
    with pytest.raises(InvalidBackupTarget, match="which is a log directory"):
        restore(disk, [target])
    assert not disk.exists(target)


def test_no_restore_into_a_half_restored_directory() -> None:
    disk, _ = backed_up()
    disk.make_dir("/new/a")
    disk.write_file_atomically(f"/new/a/{RESTORE_MARKER}", b"")
    with pytest.raises(
        InvalidBackupTarget, match="lies in /new/a, which is a log directory: name a"
    ):
        restore(disk, ["/new/a/b"])


@pytest.mark.parametrize("targets", [("/new/a/b", "/new/a"), ("/new/a", "/new/a/b")])
def test_targets_of_a_restore_are_apart(targets: tuple[str, ...]) -> None:
    disk, _ = backed_up()
    disk.make_dir("/new/a")
    with pytest.raises(
        InvalidBackupTarget, match=r"/new/a/b lies in /new/a: name a place outside it$"
    ):
        restore(disk, targets)
    assert disk.list_dir("/new/a") == []


def test_no_backup_into_a_foreign_log_directory() -> None:
    sim = with_data(new_disk())
    sim.disk.make_dir("/backup/kafka")
    sim.disk.write_file_atomically("/backup/kafka/meta.properties", b"version=1\n")
    with pytest.raises(InvalidBackupTarget, match="which is a log directory"):
        sim.operations.begin_backup("/backup/kafka/one")
    assert sim.disk.list_dir("/backup/kafka") == ["meta.properties"]
