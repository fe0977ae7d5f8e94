"""Goal: Kafka goes on with a move that kafkalog began, and kafkalog with what Kafka made of it.
Method: one broker's two log directories, opened by both in turn; the daemon is killed in between.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import end_offset
from tests.integration.test_http_log_dirs import described
from tests.integration.test_http_partition_moves import move
from tests.oracle.kafka import Broker, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

PATIENCE_SECONDS = 60


@pytest.fixture
def two_dirs(kafka: Kafka, tmp_path: Path) -> Iterator[Broker]:
    """A running broker over two log directories."""
    home = tmp_path / "broker"
    broker = Broker(kafka, home, (f"log.dirs={home}/data,{home}/other",))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def names(directory: Path, prefix: str) -> list[str]:
    """Entries that begin with the prefix, sorted."""
    return sorted(each.name for each in directory.iterdir() if each.name.startswith(prefix))


def wait_for(wish: Callable[[], bool]) -> None:
    """Another process copies."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wish():
        assert time.monotonic() < deadline, "the copy was not made"
        time.sleep(0.1)


def test_kafka_goes_on_with_our_copy(two_dirs: Broker, tmp_path: Path) -> None:
    """Goal: a -future of ours is a future replica to Kafka, which fills it and takes it into use.
    Method: adopt, begin a slow move, kill after the first slice; the broker starts over what is
    left, then the daemon over what the broker left.
    """
    broker = two_dirs
    broker.create_topic("moving")
    broker.produce("moving", [record(b"k", b"v" * 1000) for _ in range(3000)])
    expected = broker.consume("moving")
    broker.stop()
    roots = [broker.directory / "data", broker.directory / "other"]
    here = next(index for index, root in enumerate(roots) if names(root, "moving"))
    daemon = Daemon(
        tmp_path / "daemon",
        node_id="1",
        replica_alter_log_dirs_io_max_bytes_per_second="1000",
    )
    daemon.log_dirs = roots
    with daemon:
        assert move(daemon, 1 - here, "moving")["state"] == "copying"
        (left,) = names(roots[1 - here], "moving")
        assert left.endswith("-future")
        copied = roots[1 - here] / left / "00000000000000000000.log"
        wait_for(lambda: copied.stat().st_size > 0)
        daemon.kill()
        whole = roots[here] / "moving-0" / "00000000000000000000.log"
        assert copied.stat().st_size < whole.stat().st_size
        broker.start()
        wait_for(lambda: names(roots[1 - here], "moving") == ["moving-0"])
        assert broker.consume("moving") == expected
        broker.stop()
        daemon.start()
        assert end_offset(daemon, "moving") == 3000
        there = described(daemon)[1 - here]
        assert "moving-0" in [each["partition"] for each in there["partitions"]]
