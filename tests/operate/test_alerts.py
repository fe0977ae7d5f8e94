"""Goal: the alerts fire for what they are named after, in a real daemon.
Method: the condition is caused, and Prometheus, whose alerts wait for nothing here, is asked. Eight
are left to promtool's cases: KafkalogRetentionStalled, KafkalogCleanerThreadDead and
KafkalogCleanerStalled (threads that hang), KafkalogTombstonesStuck (two days),
KafkalogArchiveFallsBehind (two hours), KafkalogGroupFallsBehind (an hour), KafkalogRecoverySlow,
KafkalogFlushSlow.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, now_ms, refused, until
from tests.integration.test_disk_faults import limited, placed, tmpfs
from tests.integration.test_http_cleaner import filled, order
from tests.operate.prometheus import Prometheus, kit_directory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(400)]

HOUR_MS = 3_600_000
NEVER = str(10 * HOUR_MS)


def watching(daemon: Daemon) -> Prometheus:
    return Prometheus(kit_directory(), daemon.root / "prometheus", daemon.port)


def test_down_and_an_unclean_start(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, watching(daemon) as prometheus:
        daemon.produce_text("orders", "one")
        told = {"KafkalogDown", "KafkalogUncleanStart"}  # the first until the first scrape
        prometheus.wait_for("a scrape", lambda: prometheus.query("up == 1"))
        prometheus.wait_for("silence", lambda: not prometheus.firing() & told)
        daemon.kill()
        prometheus.wait_for_alert("KafkalogDown")
        daemon.start()
        prometheus.wait_for_alert("KafkalogUncleanStart")


def test_a_lost_directory(tmp_path: Path) -> None:
    with Daemon(tmp_path, log_dirs=2) as daemon, watching(daemon) as prometheus:
        daemon.create_topic("spread", 2, internal_segment_bytes="1000")
        partition = placed(daemon, "spread")[1]
        lost = daemon.log_dirs[1]
        lost.rename(tmp_path / "gone")
        lost.write_bytes(b"no directory")
        batch = batch_of(b"v" * 100)
        until(lambda: append(daemon, "spread", batch, partition=partition).status == 503)
        prometheus.wait_for_alert("KafkalogLogDirOffline")


def test_damage(tmp_path: Path) -> None:
    """The daemon is ready, and of each kind of damage one alert tells."""
    daemon = Daemon(tmp_path)
    with daemon:
        for topic in ("offline", "lost", "rotten"):
            daemon.create_topic(topic, 1)
            for _ in range(2):
                assert append(daemon, topic, batch_of(b"value")).status == 200
                order(daemon, f"/v1/topics/{topic}/partitions/0/log:roll", {})
    root, segment = daemon.log_dirs[0], f"{0:020}.log"
    stranger = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASZw"
    (root / "offline-0" / "partition.metadata").write_text(stranger)
    (root / "lost-0" / segment).unlink()
    data = bytearray((root / "rotten-0" / segment).read_bytes())
    data[-1] ^= 1
    (root / "rotten-0" / segment).write_bytes(data)
    with daemon, watching(daemon) as prometheus:
        assert daemon.request("GET", "/readyz").json["offline_partitions"] == 1
        prometheus.wait_for_alert("KafkalogPartitionsOffline")
        prometheus.wait_for_alert("KafkalogOffsetsLost")
        prometheus.wait_for("a scrape", lambda: prometheus.query("up == 1"))
        assert "KafkalogRecordsRotten" not in prometheus.firing()
        refused(daemon.request("GET", "/topics/rotten/partitions/0/records?offset=0"), 500, 50010)
        prometheus.wait_for_alert("KafkalogRecordsRotten")
        (alert,) = prometheus.query('ALERTS{alertname="KafkalogRecordsRotten"}')
        assert alert["metric"]["topic"] == "rotten"


def test_a_full_disk(tmp_path: Path) -> None:
    """Refused appends are told twice: the directory, and the share of 5xx."""
    daemon = Daemon(tmp_path, log_dir_min_free_bytes=str(1 << 60))
    with daemon, watching(daemon) as prometheus:
        daemon.create_topic("full")
        prometheus.wait_for_alert("KafkalogDiskCritical")

        def is_told() -> bool:
            refused(append(daemon, "full", batch_of(b"value")), 507, 50701)
            return "KafkalogAppendErrors" in prometheus.firing()

        prometheus.wait_for("KafkalogAppendErrors", is_told)


def test_a_disk_that_fills(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "one", "20m"), tmpfs(tmp_path / "other", "20m"):
        daemon = Daemon(tmp_path / "daemon", log_dir_min_free_bytes="0")
        daemon.log_dirs = [tmp_path / name / "logs" for name in ("one", "other")]
        with daemon, watching(daemon) as prometheus:
            free = "min(kafkalog_log_dir_free_bytes / kafkalog_log_dir_capacity_bytes)"
            prometheus.wait_for("room", lambda: prometheus.query(f"{free} > 0.9"))
            (tmp_path / "other" / "a little").write_bytes(bytes(1 << 20))
            (tmp_path / "one" / "filler").write_bytes(bytes(18 << 20))
            for name in ("KafkalogDiskLow", "KafkalogDiskFillsSoon", "KafkalogDirsUnbalanced"):
                prometheus.wait_for_alert(name)


def test_compaction(tmp_path: Path) -> None:
    """Rot, a log that nobody cleans, a small map and a missed deadline are told."""
    clean = "/v1/topics/{}/partitions/0/log:clean"
    daemon = Daemon(
        tmp_path, log_cleaner_backoff_ms=NEVER, log_cleaner_dedupe_buffer_size=str((1 << 20) + 1)
    )
    with daemon, watching(daemon) as prometheus:
        filled(daemon, "rotten")  # its threshold is 1, so no thread takes it by itself
        segment = daemon.log_dirs[0] / "rotten-0" / f"{0:020}.log"
        data = bytearray(segment.read_bytes())
        data[90] ^= 1
        segment.write_bytes(data)
        order(daemon, clean.format("rotten"), {})
        prometheus.wait_for_alert("KafkalogPartitionQuarantined")
        prometheus.wait_for_alert("KafkalogCompactionBehind")

        daemon.create_topic("many", 1, cleanup_policy="compact")
        for first in range(0, 45_000, 5_000):
            keys = [b"%d" % number for number in range(first, first + 5_000)]
            assert append(daemon, "many", batch_of(*keys, keys=keys)).status == 200
        order(daemon, "/v1/topics/many/partitions/0/log:roll", {})
        assert order(daemon, clean.format("many"), {}).json["outcome"] == "cleaned"
        prometheus.wait_for_alert("KafkalogCleanerMapTooSmall")

        daemon.create_topic("late", 1, cleanup_policy="compact", max_compaction_lag_ms="1000")
        old = batch_of(b"1", b"2", keys=[b"k", b"k"], timestamp_ms=now_ms() - HOUR_MS)
        assert append(daemon, "late", old).status == 200
        order(daemon, "/v1/topics/late/partitions/0/log:roll", {})
        order(daemon, clean.format("late"), {})
        prometheus.wait_for_alert("KafkalogCompactionLagBreached")


def test_a_clock_that_is_ahead(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, watching(daemon) as prometheus:
        daemon.create_topic("ahead", 1, message_timestamp_after_max_ms=NEVER)
        ahead = batch_of(b"value", timestamp_ms=now_ms() + 2 * HOUR_MS)
        assert append(daemon, "ahead", ahead).status == 200
        prometheus.wait_for_alert("KafkalogFutureTimestamps")


def test_retention_that_does_not_come(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path, log_initial_task_delay_ms=NEVER) as daemon,
        watching(daemon) as prometheus,
    ):
        daemon.create_topic("stays", 1, retention_ms="1")
        assert append(daemon, "stays", batch_of(b"value")).status == 200
        order(daemon, "/v1/topics/stays/partitions/0/log:roll", {})
        prometheus.wait_for_alert("KafkalogRetentionOverdue")


def test_records_that_go_before_they_are_read(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, watching(daemon) as prometheus:
        daemon.create_topic("unread", 1, retention_ms=NEVER)
        old = batch_of(b"value", timestamp_ms=now_ms() - 9 * HOUR_MS)
        assert append(daemon, "unread", old).status == 200
        for group, offset in (("late", 0), ("reads", 1)):
            commit = {"topic": "unread", "partition": 0, "offset": offset}
            path = f"/v1/groups/{group}/offsets"
            assert daemon.request("PUT", path, {"offsets": [commit]}).status == 204
        prometheus.wait_for_alert("KafkalogGroupNearRetention")
        (alert,) = prometheus.query('ALERTS{alertname="KafkalogGroupNearRetention"}')
        assert (alert["metric"]["group"], alert["metric"]["topic"]) == ("late", "unread")


def test_few_descriptors(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, watching(daemon) as prometheus:
        prometheus.wait_for("a scrape", lambda: prometheus.query("process_open_fds"))
        (sample,) = prometheus.query('process_open_fds{job="kafkalog"}')
        with limited(daemon, resource.RLIMIT_NOFILE, int(float(sample["value"][1]) / 0.9)):
            prometheus.wait_for_alert("KafkalogFdNearLimit")


def test_a_loop_that_is_held_up(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon, watching(daemon) as prometheus:
        prometheus.wait_for("a scrape", lambda: prometheus.query("up == 1"))
        pid = daemon.pid

        def is_told() -> bool:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.5)  # the fault itself
            os.kill(pid, signal.SIGCONT)
            return "KafkalogEventLoopBlocked" in prometheus.firing()

        prometheus.wait_for("KafkalogEventLoopBlocked", is_told)
