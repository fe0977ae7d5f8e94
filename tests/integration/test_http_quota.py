"""Goal: a topic's quota is met, seen and lifted over HTTP and on the command line.
Method: a real daemon, requests until one is refused, then a changed config and a retention run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.http_world import append, batch_of, end_offset, read_batches, refused
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

BATCH = batch_of(b"x" * 5_000)


def test_a_full_quota_is_507_50702(daemon: Daemon) -> None:
    """M16: raw and JSON alike, nothing appended; reads go on; more quota or less data lets in."""
    quota = 4 * len(BATCH)
    daemon.create_topic("bounded", 2, quota_bytes=str(quota), internal_segment_bytes="6000")
    for number in range(4):
        assert append(daemon, "bounded", BATCH, partition=number % 2).status == 200
    body = refused(append(daemon, "bounded", BATCH), 507, 50702)
    assert body["retriable"] is True
    assert body["kafka_error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert body["details"] == {"topic": "bounded", "quota_bytes": quota, "used_bytes": quota}
    answer = daemon.request("POST", "/topics/bounded", {"records": [{"value": "x" * 5_000}]})
    refused(answer, 507, 50702)
    assert end_offset(daemon, "bounded") == 2
    assert read_batches(daemon, "bounded", 0).status == 200
    described = done(run(daemon, "topics", "describe", "bounded")).decode()
    assert f"quota.bytes={quota}" in described
    done(run(daemon, "topics", "alter", "bounded", "--config", f"quota.bytes={2 * quota}"))
    assert append(daemon, "bounded", BATCH).status == 200
    page = daemon.request("GET", "/metrics").body.decode()
    assert 'kafkalog_quota_refusals_total{topic="bounded"} 2.0' in page
    done(run(daemon, "topics", "alter", "bounded", "--config", "quota.bytes=1"))
    assert refused(append(daemon, "bounded", BATCH), 413, 41305)["retriable"] is False
