"""Goal: what a log of Kafka's lost is refused by name, what was repaired is what Kafka wrote, and
kafkalog.checkpoint proves nothing that a Kafka has changed; its ids survive rot.
Method: directories that a real broker wrote, damaged, served and given back.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.broker.directory.identity import IdentityFiles, plan_identities, read_identity_files
from kafkalog.broker.topics.registry import RegistryState
from kafkalog.cli.main import make_cli
from kafkalog.cli.offline.load import LoadOptions, load_copy
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import LostOffsets
from kafkalog.format.disk.checkpoints import decode_leader_epochs, decode_offsets, encode_offsets
from kafkalog.format.disk.log_proofs import decode_proofs, encode_proofs
from kafkalog.format.disk.properties import decode_meta_properties
from kafkalog.format.records.record_batch import read_header
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.values import Isolation
from kafkalog.settings.dynamic_configs import parse_topic_config
from tests.integration.daemon import Daemon
from tests.oracle.damage import batch_starts, edited, logs
from tests.oracle.loads import LoadCase, comparable, load_with_kafka
from tests.oracle.real_directories import TIME, TOPICS, TRIMMED_TO
from tests.oracle.test_adoption import as_kafka_shows, json_records

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog
    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories


pytestmark = pytest.mark.oracle


def loaded(directory: Path, topic: str) -> UnifiedLog:
    """As the daemon adopts it after Kafka's clean stop."""
    policy = frozenset({"compact" if topic == "compacted" else "delete"})
    log = load_log(
        str(directory),
        LogConfig(cleanup_policy=policy),
        tool_environment(SystemClock()),
        clean=True,
        corruption="keep",
        may_have_gaps=topic == "compacted",
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def begins(log: UnifiedLog) -> dict[int, int | tuple[object, object]]:
    """By offset: where the batch of a fetch begins, or the range that it is refused for."""
    found: dict[int, int | tuple[object, object]] = {}
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            data = log.read(offset, 1, Isolation.LOG_END).data
        except LostOffsets as error:
            found[offset] = error.details["first_offset"], error.details["last_offset"]
        else:
            found[offset] = read_header(data).base_offset
    return found


@pytest.mark.parametrize("topic", ["plain", "txn", "compacted"])
def test_each_missing_log_of_kafkas(
    real_directories: RealDirectories, kafka: Kafka, tmp_path: Path, topic: str
) -> None:
    source = real_directories.partition("stopped", topic)
    whole = shutil.copytree(source, tmp_path / "whole" / source.name)
    log = loaded(whole, topic)
    before, bases = begins(log), [segment.base_offset for segment in log.segments]
    log.close_handles()
    assert not [each for each in before.values() if isinstance(each, tuple)]
    assert len(bases) >= 3, "two closed ones to lose"
    cases = []
    for slot, base in enumerate(bases[:-1]):
        lost = base, bases[slot + 1] - 1
        for how in ("removed", "emptied"):
            name = tmp_path / f"{base}-{how}" / source.name
            damaged = shutil.copytree(source, name)
            path = damaged / f"{base:020d}.log"
            if how == "removed":
                path.unlink()
            elif path.stat().st_size:
                path.write_bytes(b"")
            for _ in range(2):
                log = loaded(damaged, topic)
                found = begins(log)
                log.close_handles()
                inside = dict.fromkeys(range(lost[0], lost[1] + 1), lost)
                # A fetch in a gap of compaction in front of the loss would pass it by as well.
                gap = {at: lost for at in before if at < base and int(str(before[at])) >= base}
                assert found == before | inside | gap, (base, how)
        cases.append(LoadCase(damaged, tmp_path / f"case-{base}", LoadOptions(), {}))
    options = LoadOptions(now_ms=TIME, clean=True)
    cases = [LoadCase(case.source, case.home, options, case.configs) for case in cases[:3]]
    for result in load_with_kafka(kafka, tmp_path, cases):
        assert result["loaded"]["logEndOffset"] == max(before) + 1


NOW = TIME + 2_000_000
CRASHED = LoadOptions(now_ms=NOW)
DENSE = {"index.interval.bytes": "300"}
BITS = {"base offset": (8, 33, 46, 61, 63), "length": (65, 83, 94), "magic": (128, 134, 135)}


def flip(directory: Path, place: str, bit: int) -> None:
    """One bit of a batch's first 17 bytes."""
    found = logs(directory)
    log = {"first": found[0], "middle": found[len(found) // 2], "last": found[-1]}[place]
    with edited(log) as data:
        starts = batch_starts(data)
        start = {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-1]}[place]
        data[start + bit // 8] ^= 0x80 >> bit % 8


def load(directory: Path, topic: str, recovery_point: int = 0) -> dict[str, Any]:
    """As a start after a crash that keeps rot."""
    configs = {**DENSE, "cleanup.policy": "compact"} if topic == "compacted" else DENSE
    options = LoadOptions(now_ms=NOW, recovery_point=recovery_point, corruption="keep")
    return load_copy(str(directory), parse_topic_config(configs, LogConfig()), options)


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in logs(directory)}


def test_kafkas_loader_finds_in_what_was_repaired_what_was_there(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path
) -> None:
    """M08: one JVM for all; next to a gap of compaction a base offset may not be provable."""
    cases: list[LoadCase] = []
    expected: list[int] = []
    for topic in TOPICS:
        source = real_directories.partition("killed", topic)
        whole = tmp_path / "whole" / source.name
        shutil.copytree(source, whole)
        end = load(whole, topic)["loaded"]["logEndOffset"]
        first_case = len(cases)
        cases.append(LoadCase(source, tmp_path / f"{topic}-whole", CRASHED, DENSE))
        expected.append(first_case)
        for place in ("first", "middle", "last"):
            for field, bits in BITS.items():
                for bit in bits:
                    name = f"{topic}-{place}-{bit}"
                    copy = tmp_path / "rotten" / name / source.name
                    shutil.copytree(source, copy)
                    flip(copy, place, bit)
                    result = load(copy, topic, end if place == "last" else 0)
                    assert result["loaded"]["logEndOffset"] == end, name
                    if bytes_of(copy) != bytes_of(source):
                        assert (topic, field) == ("compacted", "base offset"), name
                        continue
                    cases.append(LoadCase(copy, tmp_path / name, CRASHED, DENSE))
                    expected.append(first_case)
    results = load_with_kafka(kafka, tmp_path, cases)
    assert len(results) > 100
    for case, result, of_whole in zip(cases, results, expected, strict=True):
        found, wanted = comparable(result), comparable(results[of_whole])
        assert found["loaded"] == wanted["loaded"], case.home.name


TRIMMED, PLAIN = TopicPartition("trimmed", 0), TopicPartition("plain", 0)


def starts(
    daemon: Daemon, topics: tuple[str, ...] = ("trimmed", "plain", "compacted")
) -> dict[str, int]:
    paths = {topic: f"/topics/{topic}/partitions/0/offsets" for topic in topics}
    return {
        topic: daemon.request("GET", path).json["beginning_offset"] for topic, path in paths.items()
    }


def told(daemon: Daemon) -> list[str]:
    """Logs whose starts contradict, as the log says; it begins anew."""
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines() if "{" in line]
    daemon.log_path.write_text("")
    return sorted(
        line["partition"] for line in lines if line.get("event") == "log_starts_contradict"
    )


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_rotten_lines_of_a_kafka(
    real_directories: RealDirectories, tmp_path: Path, state: str
) -> None:
    """Adopted, stopped, and then a line lowered and another one raised."""
    root = tmp_path / "dir0"
    shutil.copytree(getattr(real_directories, state), root)
    path = root / "log-start-offset-checkpoint"
    daemon = Daemon(tmp_path)
    daemon.start()
    before = starts(daemon)
    assert told(daemon) == []
    assert daemon.stop() == 0
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert not any(each.is_gapless for each in entries.values()), "none was made here"
    for topic, offset in ((TRIMMED, TRIMMED_TO - 1), (PLAIN, 30)):
        lines = decode_offsets(path.read_bytes())
        path.write_bytes(encode_offsets({**lines, topic: offset}))
    daemon.start()
    lowered = ["trimmed-0"] if before["trimmed"] == TRIMMED_TO else []
    assert starts(daemon) == {**before, "plain": 30, "trimmed": max(before["trimmed"], 56)}
    assert told(daemon) == sorted(["plain-0", *(lowered or ["trimmed-0"])])
    assert daemon.stop() == 0


def test_what_a_kafka_moved_counts(real_directories: RealDirectories, tmp_path: Path) -> None:
    """Our file is from before Kafka deleted records: its leader epochs begin at the new start."""
    root = tmp_path / "dir0"
    shutil.copytree(real_directories.stopped, root)
    daemon = Daemon(tmp_path)
    daemon.start()
    assert daemon.stop() == 0
    epochs = real_directories.partition("stopped", "trimmed") / "leader-epoch-checkpoint"
    assert decode_leader_epochs(epochs.read_bytes())[0][1] == TRIMMED_TO
    path = root / "kafkalog.checkpoint"
    directory_id, entries = decode_proofs(path.read_bytes())
    old = {key: replace(entry, log_start_offset=0) for key, entry in entries.items()}
    path.write_bytes(encode_proofs(directory_id, old))
    daemon.start()
    assert starts(daemon)["trimmed"] == TRIMMED_TO
    assert told(daemon) == []
    assert daemon.stop() == 0


def test_a_kafka_that_leads_ends_gaplessness(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path
) -> None:
    """It begins an epoch of its own; from then on it may compact without touching our file."""
    with Daemon(tmp_path) as daemon:
        daemon.create_topic("plain")
        daemon.produce_text("plain", *(f"v{number}" for number in range(40)))
    root = tmp_path / "dir0"
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert [each.is_gapless for each in entries.values()] == [True]
    epochs = root / "plain-0" / "leader-epoch-checkpoint"
    assert decode_leader_epochs(epochs.read_bytes()) == [(0, 0)]
    broker = real_directories.broker
    broker.plant("plain-0", root / "plain-0", "clean")
    broker.start()
    try:
        assert len(broker.consume("plain", from_offset=0)) == 40
    finally:
        broker.stop()
    found = decode_leader_epochs((broker.data / "plain-0" / epochs.name).read_bytes())
    assert max(epoch for epoch, _ in found) > 0
    shutil.copyfile(broker.data / "plain-0" / epochs.name, epochs)
    with Daemon(tmp_path) as daemon:
        assert starts(daemon, ("plain",)) == {"plain": 0}
    _, entries = decode_proofs((root / "kafkalog.checkpoint").read_bytes())
    assert [each.is_gapless for each in entries.values()] == [False]


def test_each_bit_of_the_file_of_a_broker(
    real_directories: RealDirectories, tmp_path: Path
) -> None:
    """What is written in the end is what the broker wrote, or the file is left as it reads."""
    path = tmp_path / "meta.properties"
    content = (real_directories.stopped / path.name).read_bytes()
    meta = decode_meta_properties(content)
    assert meta.directory_id is not None
    assert meta.node_id is not None
    directory = str(tmp_path)
    state = RegistryState(
        2,
        log_dirs=MappingProxyType({meta.directory_id: directory}),
        cluster_id=meta.cluster_id,
        node_id=meta.node_id,
    )
    for bit in range(8 * len(content)):
        rotten = bytearray(content)
        rotten[bit // 8] ^= 1 << bit % 8
        path.write_bytes(rotten)
        read = read_identity_files(directory, SystemFilesystem())
        found = IdentityFiles(directory, read.meta, read.meta_damage, state)
        plan = plan_identities([found], meta.node_id, lambda _path, _state: ())
        assert plan.unproven == {}, bit
        kept = plan.meta[directory][0] if directory in plan.meta else read.meta
        assert kept == meta, bit


def test_the_doctor_keeps_the_ids_of_a_broker(
    real_directories: RealDirectories, tmp_path: Path
) -> None:
    """Nothing proves the cluster: it is asked for; then all is served that Kafka's reader read."""
    daemon = Daemon(tmp_path)
    directory = daemon.log_dirs[0]
    shutil.copytree(real_directories.stopped, directory)
    path = directory / "meta.properties"
    meta = decode_meta_properties(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"version=1", b"version=3"))
    source = ["--override", f"log.dirs={directory}", "--override", f"node.id={meta.node_id}"]
    run = CliRunner().invoke
    asked = run(make_cli(), ["doctor", "--repair", *source])
    assert asked.exit_code == 1
    assert f"--cluster-id {meta.cluster_id}" in asked.output
    accepted = ["--cluster-id", str(meta.cluster_id)]
    assert run(make_cli(), ["doctor", "--repair", *accepted, *source]).exit_code == 0
    assert decode_meta_properties(path.read_bytes()) == meta
    daemon.overrides["node.id"] = str(meta.node_id)
    with daemon:
        expected = [as_kafka_shows(line) for line in real_directories.consumed["plain"]]
        assert json_records(daemon, "plain") == expected
