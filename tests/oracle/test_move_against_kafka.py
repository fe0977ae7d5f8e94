"""Goal: Kafka finds in a moved partition what it found before the move, and opens it as its own.
Method: a partition with every kind of batch, adopted and moved by a daemon; Kafka's loader, records
and dump tool on both directories.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.log.inspect.directory_check import verify_directory
from tests.integration.daemon import Daemon
from tests.integration.test_http_partition_moves import ended, move
from tests.oracle.test_crossing import close, open_log, write_everything

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle


def test_kafka_finds_the_same_in_a_moved_partition(kafka: Kafka, tmp_path: Path) -> None:
    """Goal: offsets, the last stable offset, epochs and every record are the same.
    Method: all codecs, producers, ended and open transactions; segments of another size.
    """
    source = tmp_path / "source" / "orders-0"
    source.mkdir(parents=True)
    log = open_log(source, clean=False)
    write_everything(log)
    close(log)
    daemon = Daemon(tmp_path / "daemon", log_dirs=2, log_segment_bytes="1048576")
    shutil.copytree(source, daemon.log_dirs[0] / "orders-0")
    with daemon:
        move(daemon, 1, "orders")
        entry = ended(daemon)
        assert (entry["state"], entry["reason"]) == ("done", None)
        moved = daemon.log_dirs[1] / "orders-0"
    assert verify_directory(str(moved), SystemFilesystem()) == []
    now = str(int(time.time() * 1000))
    before = kafka.load(source, tmp_path / "before" / "orders-0", "--clean", "--now", now)["loaded"]
    after = kafka.load(moved, tmp_path / "after" / "orders-0", "--clean", "--now", now)["loaded"]
    for name in ("logStartOffset", "logEndOffset", "lastStableOffset"):
        assert after[name] == before[name], name
    assert after["lastStableOffset"] < after["logEndOffset"]
    assert (moved / LEADER_EPOCH_CHECKPOINT).read_bytes() == (
        source / LEADER_EPOCH_CHECKPOINT
    ).read_bytes()
    assert kafka.scan(moved) == kafka.scan(source)
    files = ",".join(sorted(str(path) for path in moved.iterdir() if path.name[0].isdigit()))
    for flag in ("--deep-iteration", "--index-sanity-check"):
        dumped = kafka.dump("--files", files, flag)
        assert (dumped.status, dumped.stderr) == (0, "")
