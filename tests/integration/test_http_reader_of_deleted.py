"""Goal: over HTTP, too, a reader in the middle of a segment that goes gets whole batches.
Method: a real daemon whose own check never comes; an answer that is taken slowly while the files
vanish; readers that run while segments go one after the other.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.integration.http_world import (
    Wire,
    append,
    batch_of,
    now_ms,
    read_batches,
    refused,
    until,
)
from tests.partition_world import records_of

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000", "http_max_fetch_bytes": "16777216"}
DAY = 86_400_000
VALUE_BYTES = 100_000


def filled(daemon: Daemon, topic: str, count: int, *, retention_ms: int) -> None:
    """Old records, about ten a segment; their files go as soon as the pass has renamed them."""
    daemon.create_topic(
        topic, 1, retention_ms=str(retention_ms), file_delete_delay_ms="0", segment_bytes="1048576"
    )
    for number in range(count):
        value = b"%06d" % number + b"v" * VALUE_BYTES
        assert append(daemon, topic, batch_of(value, timestamp_ms=now_ms() - 2 * DAY)).status == 200


def run_pass(daemon: Daemon, topic: str) -> int:
    """How many segments it took; waits until their files are gone."""
    body = {"partitions": [{"topic": topic, "partition": 0}]}
    (entry,) = daemon.request("POST", "/v1/retention:run", body).json["partitions"]
    until(
        lambda: not any([*each.glob(f"{topic}-0/*.deleted")] for each in daemon.log_dirs),
        "the files stay",
    )
    return len(entry["segments"])


def check_whole(answer: Answer, offset: int) -> int:
    """Whole batches from offset on; the next offset."""
    records = records_of(answer.body)
    following = int(answer.headers["Kafka-Next-Offset"])
    assert [record.offset for record in records] == [*range(offset, following)]
    for record in records:
        assert record.value == b"%06d" % record.offset + b"v" * VALUE_BYTES
    return following


def test_an_answer_that_is_taken_slowly(daemon: Daemon) -> None:
    """M09 M12: its first bytes are read, then every file is removed, then the rest is read."""
    filled(daemon, "slow", 9, retention_ms=DAY)
    request = (
        b"GET /v1/topics/slow/partitions/0/batches?offset=0&max_bytes=16777216 HTTP/1.1\r\n"
        b"Host: x\r\n\r\n"
    )
    with Wire(daemon, receive_bytes=4096) as wire:
        wire.send(request)
        assert wire.socket.recv(1, socket.MSG_PEEK)  # the answer has begun
        assert run_pass(daemon, "slow") == 1
        refused(read_batches(daemon, "slow", 0), 410, 41001)
        answer = wire.read_answer()
    assert answer.status == 200
    assert check_whole(answer, 0) == 9
