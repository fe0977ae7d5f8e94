"""Goal: the doctor finds what will cost data, space or sleep, and nothing where there is nothing.
Method: made-up machines; then real directories under a made-up configuration.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.doctor_findings import (
    LogDirFacts,
    MachineFacts,
    Mount,
    findings,
    mount_of,
    parse_mounts,
)
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidConfig
from kafkalog.log.inspect.directory_facts import check_apart
from kafkalog.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

GIB = 1 << 30
SOUND = LogDirFacts(
    "/data", True, True, False, 100 * GIB, 50 * GIB, 1, Mount("/data", "ext4", frozenset()), {}, {}
)
ENOUGH = 1 << 20


def found(
    *log_dirs: LogDirFacts, limit: int = ENOUGH, file: str = "", **keys: str
) -> list[tuple[str, str, str]]:
    """Level, subject and the message's begin."""
    pairs = {name.replace("_", "."): text for name, text in keys.items()}
    settings = load_settings(file.encode(), {}, pairs)
    facts = MachineFacts(log_dirs or (SOUND,), limit)
    return [(one.level, one.subject, one.message) for one in findings(settings, facts)]


def the_one(*log_dirs: LogDirFacts, file: str = "", **keys: str) -> tuple[str, str]:
    """Level and message of the only finding."""
    ((level, _, message),) = found(*log_dirs, file=file, limit=ENOUGH, **keys)
    return level, message


def test_a_sound_machine_has_nothing() -> None:
    """silence."""
    assert found() == []
    assert (
        found(replace(SOUND, partitions={"t": 3}, overrides={"t": {"cleanup.policy": "compact"}}))
        == []
    )


def test_unknown_keys_are_warnings() -> None:
    """The key, and the one that was meant; Kafka's other keys are an info."""
    level, message = the_one(file="log.retention.byte=5\n")
    assert (level, "did you mean log.retention.bytes?" in message) == ("warning", True)
    assert the_one(file="listeners=PLAINTEXT://:9092\n")[0] == "info"


def test_limits_that_segments_make_void() -> None:
    """Size and time below those of a segment, for the defaults and for single topics."""
    level, subject, message = found(log_retention_bytes="1000000")[0]
    assert (level, subject) == ("warning", "defaults of topics")
    assert "a partition keeps up to 1074741824 bytes" in message
    small = {"retention.bytes": "1048576", "segment.bytes": "2097152"}
    topic = replace(SOUND, partitions={"t": 1}, overrides={"t": small})
    assert [one[:2] for one in found(topic)] == [("warning", "topic t")]
    late = {"retention.ms": "3600000", "retention.bytes": str(2 * GIB)}
    slow = replace(SOUND, partitions={"t": 1}, overrides={"t": late})
    ((level, _, message),) = found(slow)
    assert (level, "up to 168 h longer" in message) == ("info", True)
    compacted = {**small, "cleanup.policy": "compact"}
    assert found(replace(SOUND, partitions={"t": 1}, overrides={"t": compacted})) == []


def test_limits_that_the_disk_makes_void() -> None:
    """The limits of all partitions against the disk; topics without a limit are named."""
    large = {"retention.bytes": str(2 * GIB)}
    full = replace(SOUND, partitions={"t": 40}, overrides={"t": large})
    level, message = the_one(full)
    assert level == "warning"
    assert f"allow {120 * GIB} bytes" in message
    assert found(replace(full, partitions={"t": 30})) == []
    level, message = the_one(replace(SOUND, partitions=dict.fromkeys("abcd", 1)))
    assert (level, "for a, b, c and others: time alone" in message) == ("info", True)


def test_topics_that_cannot_be_served() -> None:
    """Configs that are not valid; compaction without a cleaner."""
    wrong = replace(SOUND, partitions={"t": 1}, overrides={"t": {"segment.bytes": "x"}})
    assert the_one(wrong)[0] == "error"
    compacted = replace(SOUND, partitions={"t": 1}, overrides={"t": {"cleanup.policy": "compact"}})
    level, message = the_one(compacted, log_cleaner_enable="false")
    assert (level, "grows without bound" in message) == ("warning", True)


def test_few_descriptors() -> None:
    """What a log directory keeps open instead."""
    other = replace(SOUND, path="/more", device=2)
    ((level, subject, message),) = found(SOUND, other, limit=1024, log_dirs="/data,/more")
    assert (level, subject) == ("warning", "open files")
    assert "keeps 256 segments open instead of 4096" in message


@pytest.mark.parametrize(
    ("facts", "level", "part"),
    [
        (replace(SOUND, is_writable=False), "error", "nothing can be written"),
        (replace(SOUND, exists=False), "info", "the start makes it"),
        (replace(SOUND, is_in_use=True), "info", "is using it"),
        (replace(SOUND, usable_bytes=5), "error", "5 bytes are free"),
        (replace(SOUND, path="/tmp/kafka-logs"), "warning", "after the next boot"),
        (replace(SOUND, mount=Mount("/", "ext4", frozenset({"ro"}))), "error", "read-only"),
        (replace(SOUND, mount=Mount("/", "tmpfs", frozenset())), "warning", "is memory"),
        (replace(SOUND, mount=Mount("/", "nfs4", frozenset())), "warning", "is remote"),
        (replace(SOUND, mount=Mount("/", "ext4", frozenset({"nobarrier"}))), "error", "barriers"),
        (
            replace(SOUND, mount=Mount("/", "ext4", frozenset({"data=writeback"}))),
            "warning",
            "stale bytes",
        ),
    ],
)
def test_directories_and_mounts(facts: LogDirFacts, level: str, part: str) -> None:
    """Each trouble of a directory is one finding."""
    got, message = the_one(facts)
    assert got == level
    assert part in message


def test_two_directories_on_one_disk() -> None:
    """Said once for the pair, the worst finding first."""
    full = replace(SOUND, path="/full", device=2, usable_bytes=0)
    got = found(SOUND, replace(SOUND, path="/more"), full)
    assert [one[:2] for one in got] == [("error", "/full"), ("info", "/more")]


def test_mounts_are_read() -> None:
    """The nearest mount holds a path, the later one of two on a point; blanks in names."""
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
    """Partitions are counted, nothing is made or locked, both outputs, the status."""
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


def test_a_configuration_that_no_daemon_takes() -> None:
    """The reason is the one finding, an error."""
    result = doctor("--override", "http.port=x")
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith("error: configuration: Invalid value x for http.port")
    assert last == "1 error"
    shared = doctor("--override", "admin.port=8082")
    assert shared.exit_code == 1
    assert shared.stdout.startswith("error: configuration: admin.port and http.port are the same")
    assert doctor("--override", "x").exit_code == 2
    assert doctor("/no/such/file").exit_code == 1


@pytest.mark.parametrize("log_dirs", ["{0}/a,{0}/a/in", "{0}/a/in,{0}/a", "{0}/a,{0}/link/in"])
def test_log_directories_that_are_not_apart(tmp_path: Path, log_dirs: str) -> None:
    """What a start refuses is an error here, in the words of the start; one path is fine."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    entries = log_dirs.format(tmp_path)
    result = doctor("--override", f"log.dirs={entries}")
    assert result.exit_code == 1
    with pytest.raises(InvalidConfig) as refused:
        check_apart(SystemFilesystem(), entries.split(","))
    assert result.stdout.splitlines() == [
        f"error: configuration: {refused.value.message}",
        "1 error",
    ]
    twice = f"log.dirs={tmp_path}/a,{tmp_path}/a/"
    free = "log.dir.min.free.bytes=0"
    one = doctor("--override", twice, "--override", free)
    assert (one.exit_code, "on the same disk" in one.stdout) == (0, False)
