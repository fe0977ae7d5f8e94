"""Goal: what a Kafka left open in an adopted directory is seen and ended over HTTP, by whom it may.
Method: a real daemon that adopts a log with an open transaction; the route, the client and the
command line; a restart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import Client, Conflict
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, refused
from tests.integration.test_cli_over_http import done
from tests.integration.test_cli_over_http import run as run_cli
from tests.open_transactions import left_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "/v1/topics/adopted/partitions/0/transactions:abort"


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Daemon]:
    """``adopted-0``: two records of an open transaction, then one of nobody's."""
    daemon = Daemon(tmp_path)
    directory = daemon.log_dirs[0] / "adopted-0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.log").write_bytes(left_open(7, "open", "too"))
    with daemon:
        assert append(daemon, "adopted", batch_of(b"x")).status == 200
        yield daemon


def test_over_http(lone: Daemon) -> None:
    """One call ends it durably, on record; wrong ones change nothing and say why."""
    refused(lone.request("POST", PATH, {"start_offset": 1}), 409, 40908)
    refused(lone.request("POST", PATH, {}), 422, 422)
    refused(lone.request("POST", PATH, {"start_offset": -1}), 422, 422)
    refused(lone.request("POST", PATH.replace("/0/", "/9/"), {"start_offset": 0}), 404, 40402)
    refused(lone.request("POST", PATH.replace("adopted", "no"), {"start_offset": 0}), 404, 40401)
    answer = lone.request("POST", PATH, {"start_offset": 0})
    assert answer.status == 200, answer.body
    assert answer.json == {
        "topic": "adopted",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 0,
        "last_stable_offset": 4,
    }
    lone.kill()
    lone.start()
    refused(lone.request("POST", PATH, {"start_offset": 0}), 409, 40908)
    with Client(f"http://127.0.0.1:{lone.port}") as client:
        found = client.fetch("adopted", 0, 0, isolation="read_committed")
        assert [each.value for each in found.records] == [b"x"]
        with pytest.raises(Conflict) as conflict:
            client.abort_transaction("adopted", 0, 0)
        assert conflict.value.details["first_open_offset"] is None
    audited = [
        line for line in lone.log_path.read_text().splitlines() if "abortTransaction" in line
    ]
    assert len(audited) >= 2


def test_by_the_command_line(lone: Daemon) -> None:
    """Goal: list shows what abort wants to know; nothing is open afterwards."""
    listed: Any = json.loads(
        done(run_cli(lone, "transactions", "list", "adopted", "--output", "json"))
    )
    (entry,) = listed["transactions"]
    assert (entry["partition"], entry["start_offset"], entry["producer_id"]) == (0, 0, 7)
    words = ("transactions", "abort", "adopted", "--partition", "0", "--start-offset")
    wrong = run_cli(lone, *words, "1")
    assert wrong.returncode == 1
    assert b"No open transaction begins at offset 1" in wrong.stderr
    assert done(run_cli(lone, *words, "0")) == (
        b"Aborted the transaction of producer 7 in adopted-0: committed records are readable below "
        b"4\n"
    )
    assert done(run_cli(lone, "transactions", "list", "adopted")) == (
        b"TOPIC  PARTITION  START-OFFSET  PRODUCER-ID  EPOCH  LAST-TIMESTAMP\n"
    )
