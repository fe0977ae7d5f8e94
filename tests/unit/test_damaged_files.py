"""Goal: a damaged small file costs what it must, the log or the refusal says what to do, and no
client learns from it where files are on this machine.
Method: bytes changed between two lives of a manager on a simulated disk.
"""

from __future__ import annotations

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from kafkalog import errors
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PROOFS,
    RECOVERY_POINTS,
)
from kafkalog.broker.values import Acks
from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.server.admin.probes import readiness
from kafkalog.server.protocol.errors import entry_of, error_body
from kafkalog.settings import load_settings
from tests.integration.access_world import access_settings, by
from tests.integration.daemon import ROOT
from tests.made_api import api_over, listening
from tests.partition_world import DIRECTORY, PartitionWorld, batch, checked
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sim.sim_filesystem import SimFilesystem


ONE = BrokerConfig(log_dirs=("/data/a",))
SMALL = LogConfig(segment_index_bytes=96)


def three_topics(*, clean: bool) -> SimFilesystem:
    """Topics a, b and c of one partition with four records; the start of each moved to 2."""
    sim = SimManager(config=ONE, topic_defaults=SMALL).start()
    for topic in "abc":
        sim.operations.topics.create(topic, 1)
        for _ in range(4):
            sim.produce(topic, batch_of("v"), Acks.ALL)
        assert sim.delete_records(topic, 2).error is None
    sim.manager.checkpoints.write_all(sim.manager.logs.units[0].log_dir)
    return sim.stop() if clean else sim.kill()


def starts(sim: SimManager) -> dict[str, int]:
    return {t: sim.operations.partition_log(t, 0).log_start_offset for t in "abc"}


def restarted(disk: SimFilesystem) -> tuple[SimManager, list[Any]]:
    """The next life and its log lines of level error."""
    with capture_logs() as captured:
        sim = SimManager(disk, config=ONE, topic_defaults=SMALL).start()
    return sim, [line for line in captured if line["log_level"] == "error"]


@pytest.mark.parametrize(
    ("content", "number", "text", "lost"),
    [
        (b"0\n3\na 0 2\nb 0 x\nc 0 2\n", 4, "b 0 x", "b"),
        (b"0\n3\na 0 2\nb 0\nc 0 2\n", 4, "b 0", "b"),
        (b"0\n3\na 0 2\nb 0 -5\nc 0 2\n", 4, "b 0 -5", "b"),
        (b"0\n3\na 0 2\n\xff\xfe 0 2\nc 0 2\n", 4, "\\xff\\xfe 0 2", "b"),
        (b"0\n3\na 0 2\nb 0 2\nc 0 2", None, None, ""),
        (b"0\n3\na 0 2\nb 0 2\nc 0 ", 5, "c 0 ", "c"),
        (b"x\n3\na 0 2\nb 0 2\nc 0 2\n", 1, "x", ""),
        (b"0\n7\na 0 2\nb 0 2\nc 0 2\n", 2, "7", ""),
        (b"1\n3\na 0 2\nb 0 2\nc 0 2\n", 1, "1", "abc"),
    ],
)
def test_a_bad_line_of_the_start_offsets_costs_its_partition_alone(
    content: bytes, number: int | None, text: str | None, lost: str
) -> None:
    """M08: Kafka gives up the directory, or all entries. Beside our own file it costs nothing."""
    path = f"/data/a/{LOG_START_OFFSETS}"
    disk = three_topics(clean=True)
    disk.write_file_atomically(path, content)
    assert starts(restarted(disk)[0]) == dict.fromkeys("abc", 2)
    disk = three_topics(clean=True)
    disk.write_file_atomically(path, content)
    disk.unlink(f"/data/a/{PROOFS}")
    sim, errors = restarted(disk)
    assert starts(sim) == {topic: 0 if topic in lost else 2 for topic in "abc"}
    assert sim.operations.readiness().offline_dirs == 0
    if number is None:
        assert errors == []
        return
    line = next(each for each in errors if each["line"] == number)
    assert (line["event"], line["file"], line["text"]) == ("checkpoint_damaged", path, text)
    assert "first segment" in line["consequence"]
    assert all(each["file"] == path for each in errors)


def test_a_bad_line_of_the_recovery_points_costs_its_partition_alone() -> None:
    """M08: it is recovered from its first segment, the others from where they were durable."""
    disk = three_topics(clean=False)
    path = f"/data/a/{RECOVERY_POINTS}"
    assert disk.read_file(path) == b"0\n3\na 0 4\nb 0 4\nc 0 4\n"
    disk.write_file_atomically(path, b"0\n3\na 0 4\nb O 4\nc 0 4\n")
    with capture_logs():
        log_dir = SimManager(disk.kill(), config=ONE).manager.logs.units[0].log_dir
        found = log_dir.read_checkpoint(RECOVERY_POINTS)
    assert sorted((each.topic, offset) for each, offset in found.items()) == [("a", 4), ("c", 4)]
    sim, errors = restarted(disk)
    assert [(each["file"], each["line"], each["text"]) for each in errors] == [(path, 4, "b O 4")]
    assert all(sim.operations.partition_log(topic, 0).log_end_offset == 4 for topic in "abc")


def test_a_damaged_checkpoint_is_told_once() -> None:
    """The cleaner's is read twice by a start; each of its lines that repeat another was told."""
    disk = three_topics(clean=True)
    path = f"/data/a/{CLEANER_OFFSETS}"
    disk.write_file_atomically(path, b"0\n5\na 0 2\n" + b"no entry\n" * 3 + b"c 0 x\n")
    _, errors = restarted(disk)
    told = [(each["event"], each["line"], each["text"], each["count"]) for each in errors]
    assert told == [("checkpoint_damaged", 4, "no entry", 3), ("checkpoint_damaged", 7, "c 0 x", 1)]


@pytest.mark.parametrize(
    "name", [CLEANER_OFFSETS, LOG_START_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS]
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_in_the_place_of_a_checkpoint_is_a_damaged_one(name: str, clean: bool) -> None:
    """It took the log directory offline. Now its entries are missing, and it is put aside whole."""
    disk = three_topics(clean=clean)
    path = f"/data/a/{name}"
    if disk.exists(path):
        disk.unlink(path)
    disk.unlink(f"/data/a/{PROOFS}")
    for made in (path, f"{path}.damaged", f"{path}.damaged/of an earlier time"):
        disk.make_dir(made)
    disk.write_file_atomically(f"{path}/what somebody left", b"here")
    sim, errors = restarted(disk)
    (line,) = errors
    assert (line["event"], line["file"], line["reason"]) == (
        "checkpoint_damaged",
        path,
        "is a directory",
    )
    assert sim.operations.readiness().offline_dirs == 0
    assert starts(sim) == dict.fromkeys("abc", 0 if name == LOG_START_OFFSETS else 2)
    log_dir = sim.manager.logs.units[0].log_dir
    sim.manager.checkpoints.write_cleaner_offsets(log_dir)
    disk = sim.stop()
    assert disk.read_file(f"{path}.damaged.2/what somebody left") == b"here"
    sim, errors = restarted(disk)
    assert errors == []
    assert sim.operations.topic_names() == ["a", "b", "c"]


@pytest.mark.parametrize("content", [b"", b"x", b"{}", b"\xff", b"[" * 99_999])
def test_a_marker_of_any_content_means_a_clean_shutdown(content: bytes) -> None:
    """M14: as in Kafka; nobody reads what it says."""
    disk = three_topics(clean=True)
    disk.write_file_atomically(f"/data/a/{CLEAN_SHUTDOWN_MARKER}", content)
    sim, errors = restarted(disk)
    assert sim.manager.logs.units[0].log_dir.was_clean
    assert errors == []


def epochs_world() -> PartitionWorld:
    """Four segments whose batches have the epochs 0, 0, 3, 3, 4, 4, 7, 7."""
    world = PartitionWorld()
    for epoch in (0, 3, 4, 7):
        for value in (b"x", b"y"):
            world.log.append(checked(batch([value])), leader_epoch=epoch, synced=True)
        if epoch != 7:
            world.log.roll()
    world.flush()
    return world


EPOCHS = [(0, 0), (3, 2), (4, 4), (7, 6)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content", [b"nonsense", b"0\n1\n0 0x\n", b"0\n9\n0 0\n", b"1\n0\n", bytes(30), b"0\n1\n-1 0\n"]
)
@pytest.mark.parametrize("recovery_point", [0, 5, 8])
def test_damaged_epochs_are_found_again(content: bytes, clean: bool, recovery_point: int) -> None:
    """M08: from the batches, written at once; Kafka gives up the directory or does not start."""
    world = epochs_world()
    world.log.close()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    world.filesystem.write_file_atomically(path, content)
    with capture_logs() as captured:
        log = load_log(
            DIRECTORY,
            world.config,
            world.environment(),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=1,
            corruption="keep",
        )
    expected = [(0, 1), *EPOCHS[1:]]
    assert [tuple(entry) for entry in log.epochs.entries] == expected
    assert decode_leader_epochs(world.filesystem.read_file(path)) == expected
    (line,) = [each for each in captured if each["log_level"] == "error"]
    assert (line["event"], line["file"]) == ("leader_epochs_rebuilt", path)
    assert line["reason"]


def test_with_kafkas_recovery_damaged_epochs_are_refused() -> None:
    """M08: log.recovery.corruption=kafka believes nothing and repairs nothing."""
    world = epochs_world()
    world.log.close()
    world.filesystem.write_file_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"nonsense")
    with pytest.raises(errors.CorruptCheckpoint, match="leader-epoch-checkpoint"):
        world.open(clean=True)


def test_a_partition_with_damaged_epochs_is_served() -> None:
    """M08: the daemon starts, appends go on with the newest epoch that the batches know."""
    disk = three_topics(clean=True)
    disk.write_file_atomically("/data/a/b-0/leader-epoch-checkpoint", b"\x00" * 8)
    sim, errors = restarted(disk)
    assert [line["event"] for line in errors] == ["leader_epochs_rebuilt"]
    assert sim.produce("b", batch_of("w")).error is None
    assert sim.operations.partition_log("b", 0).epochs.entries == ((0, 2),)
    assert sim.operations.readiness().offline_partitions == 0


@pytest.mark.parametrize(
    "kind", [errors.CorruptData, errors.CorruptBatch, errors.CorruptIndex, errors.CorruptCheckpoint]
)
def test_only_a_corrupt_batch_is_called_one(kind: type[errors.CorruptData]) -> None:
    body = error_body(kind("bad", file="/data/a/t-0/secret", position=1))
    message = str(body["message"])
    assert ("record batch is corrupt" in message) is (kind is errors.CorruptBatch)
    assert ("partition is out of service" in message) is (kind is not errors.CorruptBatch)
    assert "secret" not in str(body)


RULES = """\
allow writer all topic *
allow writer all group *
allow admin all topic *
allow admin all group *
allow admin describe cluster
"""
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.KafkalogError)
}
# What an expression with a path in it names.
PLACES = {"path", "directory", "log_dir", "file", "target", "parent", "metadata"}
V2 = "application/vnd.kafka.json.v2+json"
RECORDS = '{"records":[{"value":1}]}'
OFFSETS = '{"partitions":[{"topic":"t","partition":0,"offset":-1}]}'
REQUESTS = (
    ("GET", "/topics/t", "", ""),
    ("GET", "/topics/t/partitions/0/offsets", "", ""),
    ("GET", "/topics/t/partitions/0/records?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/records?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/records?offset=0", "", "text/event-stream"),
    ("GET", "/v1/topics/t/partitions/0/batches?offset=0", "", ""),
    ("GET", "/v1/topics/t/partitions/0/segments", "", ""),
    ("POST", "/topics/t/partitions/0", RECORDS, V2),
    ("POST", "/topics/t", '{"records":[{"value":1,"partition":0}]}', V2),
    ("POST", "/v1/topics/t/partitions/0/records", '{"value":1}\n', "application/x-ndjson"),
    ("POST", "/v3/clusters/{cluster}/topics/t/records", '{"partition_id":0}', "application/json"),
    ("GET", "/v3/clusters/{cluster}/topics/t/partitions/0", "", ""),
    ("GET", "/v3/clusters/{cluster}/topics/t", "", ""),
    ("POST", "/v1/offsets:list", OFFSETS, "application/json"),
    ("POST", "/v1/records:delete", OFFSETS, "application/json"),
    ("POST", "/v1/partition-moves", '{"moves":[{"topic":"t","partition":0,"log_dir":"any"}]}', ""),
    ("POST", "/v1/topics/t/partitions/0/log:flush", "", ""),
    ("POST", "/v1/retention:run", '{"topics":["t"]}', "application/json"),
    ("GET", "/console/topics/t/partitions/0", "", ""),
    ("GET", "/console/topics/t.json", "", ""),
    ("GET", "/readyz", "", ""),
)


def answers_to(root: Path, principal: str) -> list[tuple[str, int, str]]:
    """To every request, of a partition whose log directory failed."""
    named = {k.replace("_", "."): v for k, v in access_settings(root, RULES).items()}
    settings = load_settings(None, {}, {"http.port": "0", **named})

    async def run() -> list[tuple[str, int, str]]:
        sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 2)
        sim.produce("t", batch_of("a"), partition=0)
        for unit in sim.manager.logs.units:
            where = f"{unit.log_dir.path}/t-0/00000000000000000000.log"
            reason = f"Log directory {unit.log_dir.path} failed: Input/output error ({where})"
            unit.log_dir.take_offline(reason)
        with ThreadPoolExecutor(2) as pool:
            api = api_over(sim, settings, pool)
            found = []
            session = ClientSession(headers=by(principal))
            async with listening(api) as listeners, session as client:
                base = f"http://127.0.0.1:{listeners[0].port}"
                for method, path, body, kind in REQUESTS:
                    url = base + path.format(cluster=api.cluster_id)
                    named = {"Accept" if method == "GET" else "Content-Type": kind} if kind else {}
                    sent = client.request(method, url, data=body or None, headers=named)
                    async with sent as answer:
                        found.append((f"{method} {path}", answer.status, await answer.text()))
        return found

    return asyncio.run(run())


def test_a_failed_directory(tmp_path: Path) -> None:
    """By API; who may describe the cluster reads where it is."""
    told = answers_to(tmp_path, "writer")
    assert sum(status >= 500 or "50303" in said for _, status, said in told) > 10
    assert not [each for each in told if "/data/" in each[2]]
    assert [each for each in answers_to(tmp_path, "admin") if "/data/a" in each[2]]


def test_every_class_that_may_name_a_path() -> None:
    for name, kind in CLASSES.items():
        if kind.without_paths is None:
            continue
        where = "/data/a/t-0/00000000000000000000.log"
        details: dict[str, errors.Detail] = {"log_dir": "/data/a", "first_offset": 7}
        if issubclass(kind, errors.CorruptData):
            error: errors.KafkalogError = kind("bad", file=where, position=1, **details)
        else:
            error = kind(f"{where} failed", **details)
        entry, told = entry_of(error), error_body(error)
        token = errors.NAMES_PATHS.set(False)
        try:
            hidden_entry, hidden = entry_of(error), error_body(error)
        finally:
            errors.NAMES_PATHS.reset(token)
        assert "/data" not in str(hidden), name
        assert hidden_entry is entry
        assert hidden["details"] == {"first_offset": 7}, name
        assert "/data" in str(told), name


def raised_with_a_path() -> Iterator[tuple[str, str]]:
    """Where, and the class: a keyword or a piece of the message that names a place."""
    for ring in ("log", "cleaner", "broker", "server", "env", "format"):
        for module in sorted((ROOT / "kafkalog" / ring).rglob("*.py")):
            for node in ast.walk(ast.parse(module.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                if node.func.id not in CLASSES:
                    continue
                pieces = [each for arg in node.args for each in ast.walk(arg)]
                named = {each.attr for each in pieces if isinstance(each, ast.Attribute)}
                named |= {each.id for each in pieces if isinstance(each, ast.Name)}
                named |= {each.arg for each in node.keywords if each.arg}
                if named & PLACES:
                    yield f"{module.name}:{node.lineno}", node.func.id


def test_every_place_that_raises_one() -> None:
    """Its class has a message without paths: a new class that names a place needs one, too."""
    found = list(raised_with_a_path())
    assert len(found) > 40
    of_their_own = {name for name, kind in CLASSES.items() if "pathless_message" in vars(kind)}
    assert of_their_own == {"KafkalogError", "UnsupportedMessageFormat"}
    without = [each for each in found if CLASSES[each[1]].without_paths is None]
    assert {name for _, name in without} <= of_their_own - {"KafkalogError"}


def test_an_old_format_is_named_without_its_path() -> None:
    """Its message has the command of the remedy, which names the directory."""
    error = errors.UnsupportedMessageFormat("/data/a/t-0", 3, 8)
    token = errors.NAMES_PATHS.set(False)
    try:
        hidden = error_body(error)
    finally:
        errors.NAMES_PATHS.reset(token)
    assert "/data" not in str(hidden)
    assert "t-0" in str(hidden)
    assert hidden["details"] == {"base_offset": 3, "last_offset": 8}
    assert "/data/a/t-0" in str(error_body(error))


def test_a_refused_start() -> None:
    reason = "/data/a/kafkalog.registry is damaged, and no log directory has a whole copy"

    async def told() -> object:
        with ThreadPoolExecutor(1) as pool:
            api = api_over(SimManager().start(), load_settings(None, {}, {}), pool)
            api.state.start_refusal = reason
            return readiness(api)[1].start_refused

    assert asyncio.run(told()) == reason
    token = errors.NAMES_PATHS.set(False)
    try:
        assert asyncio.run(told()) == errors.UnusableLogDirs.without_paths
    finally:
        errors.NAMES_PATHS.reset(token)
