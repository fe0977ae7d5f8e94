"""Goal: jobs that only read work on the directory of a running daemon, and compact refuses it.
Method: a real daemon that takes records, rolls, compacts and deletes while the jobs run.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.audit import audit_directories
from kafkalog.jobs.compact import compact_directories
from kafkalog.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.jobs.stats import count_records
from kafkalog.jobs.tasks import InProcess
from kafkalog.jobs.whatif import forecast
from kafkalog.log.log_config import LogConfig
from tests.fleet_world import COMPACT
from tests.integration.daemon import TEXT, Daemon

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 8
APPENDS = 40
ROUNDS_MAX = 400


def append_until(daemon: Daemon, is_over: threading.Event, sent: list[int]) -> None:
    """Batches of keyed records to both topics, until somebody says so."""
    while not is_over.is_set():
        records = [
            {"key": f"k{each % 5}", "value": f"value {len(sent)} {each}" * 20} for each in range(20)
        ]
        body = json.dumps({"records": records}).encode()
        for topic in ("kept", "changing"):
            answer = daemon.request("POST", f"/topics/{topic}", body, {"Content-Type": TEXT})
            assert answer.status == 200
        sent.append(len(sent))


def config_of(_log_dir: str, topic: str) -> LogConfig:
    """As the command line reads it in the registry."""
    return COMPACT if topic == "changing" else LogConfig()


def test_jobs_over_a_daemon_at_work(tmp_path: Path) -> None:
    """No false finding and no failed job while segments are written, rolled and cleaned."""
    with Daemon(tmp_path, log_cleaner_backoff_ms="50") as daemon:
        small = {"internal_segment_bytes": "16384", "file_delete_delay_ms": "0"}
        daemon.create_topic("kept", 1, **small)
        compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        daemon.create_topic("changing", 1, **small, **compacted)
        is_over, sent = threading.Event(), list[int]()
        writer = threading.Thread(target=append_until, args=(daemon, is_over, sent))
        writer.start()
        try:
            log_dir = str(daemon.log_dirs[0])
            rounds, was_cleaned = 0, False
            while rounds < ROUNDS or len(sent) < APPENDS or not was_cleaned:
                assert rounds < ROUNDS_MAX, "the cleaner does nothing"
                rounds += 1
                partitions = find_partitions([log_dir], SystemFilesystem(), config_of=config_of)
                was_cleaned |= any(each.was_cleaned for each in partitions)
                found = audit_directories(partitions, InProcess(), target_bytes=1 << 16)
                assert [row for row in found.rows if row.severity == "error"] == []
                kept = [row for row in found.rows if row.topic == "kept"]
                assert kept == []
                rows = forecast(partitions, InProcess(), now_ms=0, horizon_ms=0)
                assert {row.topic for row in rows} == {"kept", "changing"}
                count_records(partitions, InProcess(), width_ms=1_000)
        finally:
            is_over.set()
            writer.join()
        partitions = find_partitions([log_dir], SystemFilesystem())
        with pytest.raises(UnusableDirectory, match="is served by a daemon"):
            compact_directories(partitions, str(tmp_path / "out"), InProcess(), now_ms=0)
