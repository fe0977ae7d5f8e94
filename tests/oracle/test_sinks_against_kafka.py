"""Goal: Kafka reads of a topic that a sink wrote what the sink committed, and nothing else.
Method: a daemon commits, aborts and is killed; its directory goes under a broker, to the dump tool
and to Kafka's loader, whose transaction index is held against ours.
"""

from __future__ import annotations

import base64
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.client import Client, SinkProducer, SinkWinner
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.index_entries import unpack_aborted_entries
from kafkalog.log.inspect.directory_check import verify_directory
from tests.integration.daemon import Daemon
from tests.integration.http_world import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.oracle.kafka import Broker, Kafka

pytestmark = pytest.mark.oracle

COMMITTED = [b"1 a", b"1 b", b"2 a", b"2 b", b"4 a", b"4 b"]


def send(client: Client, producer: SinkProducer, sequence: int, *values: bytes) -> None:
    batch = batch_of(
        *values,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    client.append_batches("t", 0, batch)


def begun(client: Client, batch_id: int, partition_id: int, attempt: int = 0) -> SinkProducer:
    producer = client.begin_sink("query", batch_id, partition_id, attempt)
    assert producer is not None
    return producer


def write(client: Client, batch_id: int) -> list[SinkWinner]:
    """A fenced attempt, one that loses in the midst of the winner's batches, and the winner."""
    fenced = begun(client, batch_id, 0)
    send(client, fenced, 0, b"%d fenced" % batch_id)
    winner, loser = begun(client, batch_id, 0), begun(client, batch_id, 0, 1)
    send(client, winner, 0, b"%d a" % batch_id)
    send(client, loser, 0, b"%d lost" % batch_id, b"%d lost" % batch_id)
    send(client, winner, 1, b"%d b" % batch_id)
    return [SinkWinner(winner.producer_id, winner.producer_epoch, [("t", 0)])]


def values(lines: list[str]) -> list[bytes]:
    return [base64.b64decode(json.loads(line)["value"]) for line in lines]


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a partition: batches 1, 2 and 4 committed, 3 aborted, through a kill."""
    with Daemon(tmp_path_factory.mktemp("sink")) as daemon:
        daemon.create_topic("t")
        with Client(f"http://127.0.0.1:{daemon.port}") as client:
            for batch_id in (1, 2, 3):
                winners = write(client, batch_id)
                if batch_id == 2:
                    daemon.kill()
                    daemon.start()
                if batch_id < 3:
                    client.commit_sink("query", batch_id, winners)
            client.abort_sink("query", 3)
            client.commit_sink("query", 4, write(client, 4))
        daemon.stop()
        return daemon.log_dirs[0] / "t-0"


@pytest.mark.parametrize("mode", ["clean", "recover"])
def test_a_broker_serves_what_was_committed(
    partition: Path, new_broker: Callable[..., Broker], mode: str
) -> None:
    """M04 M25: Kafka's consumer with read_committed, and without.

    Method: the files in the place of a topic of the broker's own, once with our index and snapshot,
    once with those that it makes.
    """
    broker = new_broker()
    broker.create_topic("t")
    broker.stop()
    broker.plant("t-0", partition, mode)
    broker.start()
    seen = broker.consume("t", committed=True)
    assert values(seen) == COMMITTED
    everything = values(broker.consume("t"))
    assert len(everything) == 4 * 5
    assert [value for value in everything if value in COMMITTED] == COMMITTED


def test_kafka_dumps_and_loads_the_same(kafka: Kafka, partition: Path, tmp_path: Path) -> None:
    """M02 M04 M25: every batch valid, markers and their coordinator, index and snapshot as ours.

    Method: DumpLogSegments; Kafka's loader on a copy without the derived files makes them anew.
    """
    copy = tmp_path / "t-0"
    shutil.copytree(partition, copy)
    log = copy / "00000000000000000000.log"
    dumped = kafka.dump("--deep-iteration", "--files", log).stdout
    assert "isvalid: false" not in dumped
    assert dumped.count("endTxnMarker: COMMIT coordinatorEpoch: 0") == 3
    assert dumped.count("endTxnMarker: ABORT coordinatorEpoch: 0") == 9
    ours = (partition / "00000000000000000000.txnindex").read_bytes()
    assert len(unpack_aborted_entries(ours)) == 9
    for file in copy.iterdir():
        if file.suffix in (".txnindex", ".snapshot", ".index", ".timeindex"):
            file.unlink()
    theirs = tmp_path / "theirs" / "t-0"
    theirs.parent.mkdir()
    kafka.load(copy, theirs)
    assert (theirs / "00000000000000000000.txnindex").read_bytes() == ours
    assert verify_directory(str(partition), SystemFilesystem()) == []
