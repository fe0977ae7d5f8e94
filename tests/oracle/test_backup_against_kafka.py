"""Goal: Kafka loads what kafkalog backed up while it ran, and every record of it is there.

Method: a daemon on a broker's directories is backed up between appends; Kafka's loader, its dump
tool and a broker read the backup, linked and copied, and what is restored from it.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.log.inspect.directory_check import verify_directory
from tests.integration.daemon import Daemon
from tests.integration.test_backup import manifest_of, restore
from tests.integration.test_cli_over_http import done, run
from tests.oracle.real_directories import TOPICS
from tests.oracle.test_adoption import append_over_http, json_records, raw_lines, without_gaps

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.format.disk.backup_manifest import BackupPartition
    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle

NEW = [f"new {number}" for number in range(40)]


def append_all(daemon: Daemon) -> None:
    """Some batches to every topic, over a roll."""
    for topic in TOPICS:
        for start in range(0, len(NEW), 4):
            append_over_http(daemon, topic, NEW[start : start + 4])


@pytest.mark.parametrize("how", ["link", "copy"])
def test_kafka_takes_a_backup(
    kafka: Kafka, real_directories: RealDirectories, tmp_path: Path, how: str
) -> None:
    """Transactions, gaps of compaction and a moved log start come along; later records do not."""
    shutil.copytree(real_directories.killed, tmp_path / "dir0")
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    with Daemon(tmp_path) as daemon:
        append_all(daemon)
        served = {topic: list(raw_lines(daemon, topic)) for topic in TOPICS}
        committed = {
            topic: json_records(daemon, topic, "&isolation=read_committed") for topic in TOPICS
        }
        options = ("--copy",) if how == "copy" else ()
        done(run(daemon, "backup", str(backup), *options))
        append_all(daemon)
        daemon.kill()
    result = restore(backup, "--to", restored)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    (log_dir,) = manifest_of(backup).log_dirs
    every = {each.topic_partition.topic: each for each in log_dir.partitions}
    partitions = {topic: every[topic] for topic in TOPICS}  # Kafka's own topics are there, too
    for topic, partition in partitions.items():
        for place in (backup / log_dir.name, restored):
            check_directory(kafka, place / f"{topic}-0", partition, served[topic], tmp_path)
    copy = Daemon(tmp_path / "copy")
    copy.log_dirs = [shutil.copytree(restored, tmp_path / "started")]
    with copy:
        for topic in TOPICS:
            assert list(raw_lines(copy, topic)) == served[topic]
            assert json_records(copy, topic, "&isolation=read_committed") == committed[topic]
    broker = real_directories.broker
    for topic, partition in partitions.items():
        start = partition.log_start_offset
        broker.plant(f"{topic}-0", restored / f"{topic}-0", "recover", log_start=start)
    broker.start()
    try:
        for topic in TOPICS:
            first = json.loads(served[topic][0])["offset"]
            assert broker.consume(topic, from_offset=first) == served[topic]
            shown = broker.consume(topic, from_offset=first, committed=True)
            offsets = [json.loads(line)["offset"] for line in shown]
            assert offsets == [each[0] for each in committed[topic]]
    finally:
        broker.stop()


def check_directory(
    kafka: Kafka, path: Path, partition: BackupPartition, served: list[str], tmp_path: Path
) -> None:
    """Nothing to find for our check and Kafka's tool; Kafka's loader ends where we said."""
    assert verify_directory(str(path), SystemFilesystem()) == []
    home = tmp_path / "kafka" / path.parent.name
    start, end = partition.log_start_offset, partition.end_offset
    options = ("--recovery-point", str(end), "--log-start", str(start))
    loaded = kafka.load(path, home / path.name, *options)["loaded"]
    assert (loaded["logStartOffset"], loaded["logEndOffset"]) == (start, end)
    copy = shutil.copytree(path, home / "dump" / path.name)
    files = sorted(str(file) for file in copy.iterdir() if file.name[0].isdigit())
    assert kafka.dump("--files", ",".join(files), "--index-sanity-check").stderr == ""
    assert without_gaps(kafka.dump("--files", ",".join(files)).stderr) == []
    scanned = kafka.scan(copy, json.loads(served[0])["offset"])
    assert scanned == served
