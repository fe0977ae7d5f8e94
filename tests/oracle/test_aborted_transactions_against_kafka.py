"""Goal: a transaction that Kafka left open and we aborted is an aborted one to Kafka.
Method: a broker's directory with an open transaction, adopted, ended and handed to another broker,
whose consumer reads it with read_committed.
"""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client
from tests.integration.daemon import Daemon
from tests.oracle.kafka import action, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.kafka import Broker, Kafka

pytestmark = pytest.mark.oracle


def test_kafka_reads_on_behind_our_marker(
    kafka: Kafka, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """M04 M25: nothing behind the open transaction is readable before, all but its own after.

    Method: a producer that has committed before, so that the log knows its coordinator; the dump of
    our marker; a broker with our indexes and snapshots, and one that makes its own.
    """
    written = new_broker()
    written.create_topic("t")
    committed = [action("begin"), record(b"k", b"a"), action("flush"), action("commit")]
    opened = [action("begin"), record(b"k", b"open"), action("flush")]
    written.produce("t", [*committed, *opened], "--transactional", "tx", "--abandon")
    written.produce("t", [record(b"k", b"b")])
    written.stop()
    adopting = Daemon(tmp_path)
    shutil.copytree(written.data / "t-0", adopting.log_dirs[0] / "t-0")
    with adopting as daemon:
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            seen = client.fetch("t", 0, 0, isolation="read_committed")
            assert [each.value for each in seen.records] == [b"a"]
            (entry,) = client.describe_producers("t", 0)
            start_offset = entry["current_transaction_start_offset"]
            client.abort_transaction("t", 0, start_offset)
        daemon.stop()
    directory = adopting.log_dirs[0] / "t-0"
    dumped = kafka.dump("--deep-iteration", "--files", next(directory.glob("*.log"))).stdout
    assert "isvalid: false" not in dumped
    assert dumped.count("endTxnMarker: ABORT") == 1
    for mode in ("clean", "recover"):
        reader = new_broker()
        reader.create_topic("t")
        reader.stop()
        reader.plant("t-0", directory, mode)
        reader.start()
        lines = reader.consume("t", committed=True)
        assert [base64.b64decode(json.loads(each)["value"]) for each in lines] == [b"a", b"b"]
