"""Goal: the doctor finds what will cost data, space or sleep, rebuilds what can be proven, keeps
what was there, and asks for the rest.
Method: directories on a simulated disk with one fault each.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from kafkalog.__main__ import warn_of_overlooked_data
from kafkalog.broker.directory.log_dir import META_PROPERTIES, REGISTRY_FILE
from kafkalog.broker.directory.repair import LogDirRepair
from kafkalog.broker.topics.registry import (
    FORMAT,
    ClockTrust,
    RegisteredTopic,
    RegistryState,
    decode_registry,
    encode_registry,
)
from kafkalog.broker.topics.registry_copies import corrected_registry
from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.diagnosis import (
    LogDirFacts,
    Mount,
    findings,
    log_dir_facts,
    mount_of,
    parse_mounts,
)
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidConfig, UnusableLogDirs
from kafkalog.format.disk.properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties as encoded_meta,
)
from kafkalog.format.topic_names import decode_id, encode_id
from kafkalog.log.inspect.directory_facts import check_apart, known_lost
from kafkalog.settings import load_settings
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
    flipped,
    offline,
    served,
    started,
    stopped,
)

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.sim.crash_enumeration import CrashPoint
    from tests.sim.sim_filesystem import SimFilesystem


GIB = 1 << 30
SOUND = LogDirFacts(
    "/data", True, True, False, 45 * GIB, 50 * GIB, 1, Mount("/data", "ext4", frozenset()), {}, {}
)
ENOUGH = 1 << 20


def found(
    *log_dirs: LogDirFacts, limit: int = ENOUGH, file: str = "", **keys: str
) -> list[tuple[str, str, str]]:
    """Level, subject and message, but for sums that the disk has room for."""
    pairs = {name.replace("_", "."): text for name, text in keys.items()}
    settings = load_settings(file.encode(), {}, pairs)
    every = findings(settings, log_dirs or (SOUND,), limit)
    return [
        (one.level, one.subject, one.message)
        for one in every
        if one.level != "info" or "there is room for" not in one.message
    ]


def with_topic(partitions: int = 1, /, **overrides: str) -> LogDirFacts:
    """The sound directory with topic t."""
    named = {name.replace("_", "."): text for name, text in overrides.items()}
    return replace(SOUND, partitions={"t": partitions}, overrides={"t": named})


def mounted(kind: str, *options: str) -> LogDirFacts:
    return replace(SOUND, mount=Mount("/", kind, frozenset(options)))


TWO_GIB = str(2 * GIB)
SMALL = {"retention_bytes": "1048576", "segment_bytes": "2097152"}


@pytest.mark.parametrize(
    "facts",
    [
        SOUND,
        with_topic(3, cleanup_policy="compact"),
        with_topic(cleanup_policy="compact", **SMALL),
        with_topic(30, retention_bytes=TWO_GIB),
    ],
)
def test_what_is_sound_has_no_finding(facts: LogDirFacts) -> None:
    assert found(facts) == []


@pytest.mark.parametrize(
    ("facts", "level", "part"),
    [
        (replace(SOUND, is_writable=False), "error", "nothing can be written"),
        (replace(SOUND, exists=False), "info", "the start makes it"),
        (replace(SOUND, is_in_use=True), "info", "is using it"),
        (replace(SOUND, usable_bytes=5), "error", "5 bytes are free"),
        (replace(SOUND, path="/tmp/kafka-logs"), "warning", "after the next boot"),
        (mounted("ext4", "ro"), "error", "read-only"),
        (mounted("tmpfs"), "warning", "is memory"),
        (mounted("nfs4"), "warning", "is remote"),
        (mounted("ext4", "nobarrier"), "error", "barriers"),
        (mounted("ext4", "data=writeback"), "warning", "stale bytes"),
        (with_topic(**SMALL), "warning", "topic t: "),
        (with_topic(retention_ms="3600000", retention_bytes=TWO_GIB), "info", "up to 168 h longer"),
        (with_topic(40, retention_bytes=TWO_GIB), "warning", f"allow {120 * GIB} bytes"),
        (
            replace(SOUND, partitions=dict.fromkeys("abcd", 1)),
            "info",
            "for a, b, c and others: time alone",
        ),
        (with_topic(segment_bytes="x"), "error", "topic t: "),
        (replace(SOUND, lost={"/data/t-0": [(5, 8)]}), "error", "offsets 5 to 8 are lost: "),
        (replace(SOUND, lost={"/data/t-0": [(5, None)]}), "error", "offsets from 5 on are lost: "),
    ],
)
def test_a_trouble_is_one_finding(facts: LogDirFacts, level: str, part: str) -> None:
    ((got, subject, message),) = found(facts)
    assert got == level
    assert part in f"{subject}: {message}"


def test_the_sum_of_a_directory_is_always_told() -> None:
    """Room is what the log has and can still get: not the size of its file system."""
    settings = load_settings(b"log.dir.min.free.bytes=1024\n", {}, {})

    def told(facts: LogDirFacts) -> tuple[str, str]:
        (sums,) = [
            each for each in findings(settings, [facts], ENOUGH) if "room for" in each.message
        ]
        return sums.level, sums.message

    room = f"room for {95 * GIB - 1024} ({45 * GIB} used by it and {50 * GIB} free, less"
    level, message = told(SOUND)
    assert (level, "0 of its 0 partitions allow 0 bytes" in message) == ("info", True)
    assert room in message
    two = with_topic(2, retention_bytes=TWO_GIB)
    level, message = told(replace(two, partitions={"t": 2, "u": 3}))
    assert (level, f"2 of its 5 partitions allow {6 * GIB} bytes" in message) == ("info", True)
    level, message = told(replace(two, used_bytes=GIB, usable_bytes=4 * GIB))
    assert (level, "it can be full before retention deletes" in message) == ("warning", True)


def test_the_bytes_of_a_directory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "0.log").write_bytes(bytes(range(256)) * 64)
    (facts,) = log_dir_facts([str(tmp_path)], SystemFilesystem())
    assert 16_384 <= facts.used_bytes < 65_536


def test_a_mistyped_key_is_an_error_unless_it_is_allowed(tmp_path: Path) -> None:
    """The option is that of `kafkalog server`."""
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}\nhtpp.port=9000\n")
    run = CliRunner().invoke
    refused = run(make_cli(), ["doctor", str(file)])
    assert refused.exit_code == 1
    assert "error: configuration: Nothing reads htpp.port; did you mean http.port?" in (
        refused.output
    )
    allowed = run(make_cli(), ["doctor", "--allow-unknown", str(file)])
    assert "warning: configuration: unknown configuration key htpp.port" in allowed.output


def test_findings_about_the_configuration() -> None:
    (level, _, message), *_ = found(file="log.retention.size=5\n")
    assert (level, "did you mean log.retention" in message) == ("warning", True)
    assert found(file="listeners=PLAINTEXT://:9092\n")[0][0] == "info"
    level, subject, message = found(log_retention_bytes="1000000")[0]
    assert (level, subject) == ("warning", "defaults of topics")
    assert "a partition keeps up to 1074741824 bytes" in message
    ((level, _, message),) = found(with_topic(cleanup_policy="compact"), log_cleaner_enable="false")
    assert (level, "grows without bound" in message) == ("warning", True)
    other = replace(SOUND, path="/more", device=2)
    ((level, subject, message),) = found(SOUND, other, limit=1024, log_dirs="/data,/more")
    assert (level, subject) == ("warning", "open files")
    assert "keeps 256 segments open instead of 4096" in message


def test_two_directories_on_one_disk() -> None:
    full = replace(SOUND, path="/full", device=2, usable_bytes=0)
    got = found(SOUND, replace(SOUND, path="/more"), full)
    assert [one[:2] for one in got] == [("error", "/full"), ("info", "/more")]


def test_mounts_are_read() -> None:
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,data=ordered\n"
        "30 22 8:2 / /data\\040x rw,noatime - xfs /dev/sdb rw\n"
        "31 22 8:3 / /d rw - ext4 /dev/sdc rw\n"
        "32 22 0:9 / /d ro - tmpfs tmpfs rw\n"
        "no mount\n"
    )
    mounts = parse_mounts(text)
    assert len(mounts) == 4

    def kind(path: str) -> str:
        mount = mount_of(path, mounts)
        return mount.kind if mount else ""

    assert [kind(path) for path in ("/data x/y", "/data x", "/dat", "/d/e", "/")] == [
        "xfs", "xfs", "ext4", "tmpfs", "ext4"
    ]  # fmt: skip
    assert mounts[0].options >= {"relatime", "data=ordered"}
    assert mount_of("/x", []) is None


def doctor(*words: str) -> Result:
    """``kafkalog doctor WORDS``, in an environment without settings."""
    return CliRunner().invoke(make_cli(), ["doctor", *words])


def test_the_command_looks_at_real_directories(tmp_path: Path) -> None:
    (tmp_path / "a" / "t-0").mkdir(parents=True)
    (tmp_path / "a" / "t-1").mkdir()
    (tmp_path / "a" / "some-file").write_text("")
    words = ("--override", f"log.dirs={tmp_path}/a,{tmp_path}/b", "--output", "json")
    before = sorted(tmp_path.rglob("*"))
    result = doctor(*words, "--override", "log.dir.min.free.bytes=0")
    subjects = [one["subject"] for one in json.loads(result.stdout)]
    assert result.exit_code == 0
    assert {f"{tmp_path}/a", f"{tmp_path}/b"} <= set(subjects)
    assert "no limit by size (retention.bytes) for t: " in result.stdout
    assert sorted(tmp_path.rglob("*")) == before
    text = doctor(*words[:2], "--override", f"log.dir.min.free.bytes={1 << 62}")
    assert text.exit_code == 1
    assert text.stdout.splitlines()[-1].startswith("2 errors")


def test_an_index_without_a_log_is_a_loss(tmp_path: Path) -> None:
    """Unless the segment before it reaches over it, as after a clean that was cut short."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(batch_of("a", "b"))
    (directory / f"{9:020}.log").touch()
    assert known_lost(str(directory), SystemFilesystem()) == ()
    (directory / f"{1:020}.index").touch()
    assert known_lost(str(directory), SystemFilesystem()) == ()
    (directory / f"{5:020}.timeindex").touch()
    (directory / f"{12:020}.index").touch()
    assert known_lost(str(directory), SystemFilesystem()) == ((5, 8), (12, None))
    facts, *_ = log_dir_facts([str(tmp_path)], SystemFilesystem())
    assert facts.lost == {str(directory): ((5, 8), (12, None))}


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deep inside, where the directory itself may be used."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "0.log").touch()
    access = os.access

    def denied(path: str, mode: int) -> bool:
        return not str(path).endswith(".log") and access(path, mode)

    monkeypatch.setattr(os, "access", denied)
    free = ("--override", "log.dir.min.free.bytes=0")
    result = doctor("--override", f"log.dirs={tmp_path}", *free)
    assert result.exit_code == 1
    said = f"error: {tmp_path}: 1 file cannot be read and written by "
    (line,) = [each for each in result.stdout.splitlines() if each.startswith(said)]
    assert f": {partition / '0.log'}. Run it as their owner" in line


def test_a_configuration_that_no_daemon_takes() -> None:
    result = doctor("--override", "http.port=x")
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith("error: configuration: Invalid value x for configuration http.port")
    assert last == "1 error"
    shared = doctor("--override", "admin.port=8082")
    assert shared.exit_code == 1
    assert shared.stdout.startswith("error: configuration: admin.port and http.port are the same")
    assert doctor("--override", "x").exit_code == 2
    assert doctor("/no/such/file").exit_code == 1


def test_log_directories_that_are_not_apart(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    entries = [f"{tmp_path}/a", f"{tmp_path}/link/in"]
    result = doctor("--override", f"log.dirs={','.join(entries)}")
    assert result.exit_code == 1
    with pytest.raises(InvalidConfig) as refused:
        check_apart(SystemFilesystem(), entries)
    assert result.stdout == f"error: configuration: {refused.value.message}\n1 error\n"
    twice = f"log.dirs={tmp_path}/a,{tmp_path}/a/"
    free = "log.dir.min.free.bytes=0"
    one = doctor("--override", twice, "--override", free)
    assert (one.exit_code, "on the same disk" in one.stdout) == (0, False)


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
    for disk in (stopped(*DIRS), directories_of_kafka()):
        before = len(disk.operations)
        assert repaired(disk, *DIRS) == ({}, {})
        assert {each.kind for each in disk.operations[before:]} <= {"create"}  # the lock


def test_a_flipped_bit_of_any_registry_is_found() -> None:
    small = RegistryState(3).with_topics([RegisteredTopic(decode_id("a" * 22), "t", 1)])
    ids = [UUID(int=number + 500, version=4) for number in range(60)]
    large = small.with_topics(
        RegisteredTopic(each, f"topic-{each.int}", 3, {"retention.ms": "7"}) for each in ids
    )
    clock = replace(small, clock=ClockTrust("boot", 1, 0, 2, {"t": [0]}))  # the next line
    states = ((small, 3), (clock, 3), (large.with_broker_configs({"a": 'b: "c": d'}), 2003))
    for state, stride in states:
        data = encode_registry(state)
        for bit in range(0, 8 * len(data), stride):
            assert corrected_registry(flipped(data, bit)) == state, bit


def test_what_no_flipped_bit_explains_is_not_believed() -> None:
    data = encode_registry(RegistryState(3, cluster_id="x" * 22, node_id=1))
    for bit in range(0, 8 * len(data) - 40, 61):
        assert corrected_registry(flipped(data, bit, bit + 37)) is None
    for rotten in (b"", data[:50], data[50:], b"\xff" * 99):
        assert corrected_registry(rotten) is None


@pytest.mark.parametrize("stride", [211, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_one_bit_of_the_only_registry(stride: int) -> None:
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
    sim = started(stopped(A), A).with_topic("other", 3)
    assert sim.produce("other", batch_of("w"), partition=2).error is None
    next_id = sim.manager.registry.state.next_producer_id
    ids = {name: topic.topic_id for name, topic in sim.manager.registry.state.topics.items()}
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
    topics = sim.manager.registry.state.topics
    assert {name: topic.topic_id for name, topic in topics.items()} == ids
    assert sim.operations.partition_count("other") == 3
    assert sim.operations.partition_log("other", 2).log_end_offset == 1
    overrides = sim.operations.topics.describe("t").overrides
    assert dict(overrides) == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert sim.manager.registry.state.next_producer_id > next_id
    assert not sim.manager.registry.state.in_making


def test_a_topic_that_only_the_damaged_copy_knew() -> None:
    sim = started(stopped(*DIRS), *DIRS)
    sim.manager.logs.units[1].log_dir.take_offline("it broke")
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
    disk = stopped(*DIRS)
    for name in (REGISTRY_FILE, META_PROPERTIES):
        disk.write_file_atomically(f"{A}/{name}", b"{")
    before = {path: disk.list_dir(path) for path in DIRS}
    shown = repaired(disk, *DIRS, dry_run=True)
    assert {path: disk.list_dir(path) for path in DIRS} == before
    assert disk.read_file(f"{A}/{REGISTRY_FILE}") == b"{"
    assert repaired(disk, *DIRS) == shown


def test_directories_that_do_not_belong_together_are_left_alone() -> None:
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


def test_a_default_directory_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon under systemd has another default: a repair of nothing is no success."""
    service = tmp_path / "service"
    service.mkdir()
    (service / META_PROPERTIES).write_bytes(b"")
    monkeypatch.setattr("kafkalog.settings.settings._OTHER_DEFAULTS", (str(service),))
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": None, "STATE_DIRECTORY": None}
    default, run = tmp_path / ".local/share/kafkalog", CliRunner().invoke
    examined = run(make_cli(), ["doctor"], env=home)
    assert f"info: {default}: log.dirs is not set" in examined.output
    named = (
        f"warning: {service}: it holds data, but {default} is examined: add --override log.dirs="
    )
    assert f"{named}{service}" in examined.output
    nothing = run(make_cli(), ["doctor", "--repair"], env=home)
    assert nothing.exit_code == 1
    assert f"None of the log directories exists, so nothing was repaired: {default}" in (
        nothing.output
    )
    assert named in nothing.output
    chosen = run(make_cli(), ["doctor", "--override", f"log.dirs={service}"], env=home)
    assert "log.dirs is not set" not in chosen.output


def test_a_start_names_data_in_a_former_default(monkeypatch: pytest.MonkeyPatch) -> None:
    there = "/tmp/kafka-logs/meta.properties"
    monkeypatch.setattr("os.path.exists", lambda path: path == there)
    with capture_logs() as lines:
        warn_of_overlooked_data(load_settings(None, {"HOME": "/home/ada"}, {}))
        warn_of_overlooked_data(load_settings(None, {}, {"log.dirs": "/a"}))
    (line,) = lines
    assert (line["log_level"], line["log_dir"], line["not_served"]) == (
        "warning",
        "/home/ada/.local/share/kafkalog",
        ["/tmp/kafka-logs"],
    )


def test_the_command(tmp_path: Path) -> None:
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
    assert f"the damaged file is kept as {damaged}.damaged" in done.output
    assert damaged.read_bytes() == (second / REGISTRY_FILE).read_bytes()
    assert (first / f"{REGISTRY_FILE}.damaged").read_bytes() == b"{"
    assert run(make_cli(), ["doctor", "--repair", *source]).output == "No problems found.\n"
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
