"""Goal: what changes a log or the cleaner in the middle of a clean is obeyed, and no key is lost.
Method: a real daemon whose cleaner is slowed down to a crawl; orders over HTTP while it cleans.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.http_world import end_offset, refused
from tests.integration.test_http_cleaner import contents, filled, log_of, order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Daemon

# Nothing is cleaned or retained without an order.
SETTINGS = {"log_cleaner_backoff_ms": "600000", "log_initial_task_delay_ms": "86400000"}
CRAWL = "2000"  # the topics have about 50,000 bytes, and each is read twice: most of a minute
ROUNDS, KEYS = 120, 10
SECONDS = 30


def alter(daemon: Daemon, **values: str | None) -> None:
    """Dynamic broker configs; underscores for dots, None takes one back."""
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    entries = [
        {"name": key.replace("_", "."), "operation": "DELETE"}
        if value is None
        else {"name": key.replace("_", "."), "value": value}
        for key, value in values.items()
    ]
    path = f"/v3/clusters/{cluster['cluster_id']}/broker-configs:alter"
    answer = daemon.request("POST", path, {"data": entries})
    assert answer.status == 204, answer.body


@pytest.fixture
def crawling(daemon: Daemon) -> Iterator[Daemon]:
    """The daemon with a cleaner that takes many seconds for a topic; fast again afterwards."""
    alter(daemon, log_cleaner_io_max_bytes_per_second=CRAWL)
    yield daemon
    alter(daemon, log_cleaner_io_max_bytes_per_second=None, log_cleaner_threads=None)


def begin_clean(daemon: Daemon, topic: str) -> str:
    """Order a clean and return when a thread is in the middle of it; where its operation is."""
    path = f"/v1/topics/{topic}/partitions/0/log:clean"
    answer = daemon.request("POST", path, {}, {"Prefer": "respond-async"})
    assert answer.status == 202, answer.body
    deadline = time.monotonic() + SECONDS
    while log_of(daemon, topic)["state"] != "in_progress":
        assert time.monotonic() < deadline, "no thread took the log"
        time.sleep(0.02)
    return answer.headers["Location"]


def ended(daemon: Daemon, where: str) -> Any:
    """The operation when it has ended."""
    deadline = time.monotonic() + SECONDS
    while (operation := daemon.request("GET", where).json)["state"] == "running":
        assert time.monotonic() < deadline, "the clean does not end"
        time.sleep(0.02)
    return operation


def cleaned(daemon: Daemon, topic: str) -> Any:
    """The answer of a clean by order, behind those that the threads begin by themselves."""
    deadline = time.monotonic() + SECONDS
    path = f"/v1/topics/{topic}/partitions/0/log:clean"
    while (run := order(daemon, path, {})).status == 409:
        assert time.monotonic() < deadline, run.body
        time.sleep(0.05)
    assert run.status == 200, run.body
    return run.json


def check_every_key(daemon: Daemon, topic: str, last: dict[str, str | None], start: int) -> None:
    """A consumer that applies what it reads has the last value of each key."""
    found: dict[str, str | None] = {}
    for offset, key, value in contents(daemon, topic):
        assert offset >= start
        found[key] = value
    gone = last.keys() - found.keys()
    assert all(last[key] is None for key in gone), "only a deleted key may be missing"
    assert all(last[key] == value for key, value in found.items())


def test_records_are_deleted_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M10 M17: as in Kafka the log start moves at once; the clean goes on or begins again.
    Delete-records waits for no clean, and a clean brings nothing back.
    """
    daemon = crawling
    last = filled(daemon, "cut", ROUNDS, cleanup_policy="compact,delete")
    middle = end_offset(daemon, "cut") // 2
    where = begin_clean(daemon, "cut")
    body = {"partitions": [{"topic": "cut", "partition": 0, "offset": middle}], "version": 1}
    began = time.monotonic()
    answer = daemon.request("POST", "/v1/records:delete", body)
    assert answer.json["partitions"][0]["low_watermark"] == middle
    assert time.monotonic() - began < 15, "it waited for the clean"
    check_every_key(daemon, "cut", last, middle)
    path = "/v1/topics/cut/partitions/0/log:clean"
    refused(order(daemon, path, {}), 409, 40910)  # at once: there is one thread, and it is busy
    assert daemon.request("GET", where).json["state"] == "running"
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    ended(daemon, where)
    check_every_key(daemon, "cut", last, middle)
    cleaned(daemon, "cut")
    check_every_key(daemon, "cut", last, middle)
    assert log_of(daemon, "cut")["failure"] is None


def test_a_topic_is_no_longer_compacted_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M16 M17: the clean ends before the answer, and leaves no file behind. From the answer on
    nobody compacts the log.
    """
    daemon = crawling
    last = filled(daemon, "turned", ROUNDS)
    before = contents(daemon, "turned")
    where = begin_clean(daemon, "turned")
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/turned/configs:alter"
    change = {"data": [{"name": "cleanup.policy", "value": "delete"}]}
    assert daemon.request("POST", path, change).status == 204
    operation = ended(daemon, where)  # of which a thread of its own tells, a moment after the clean
    assert (operation["state"], operation["error"]["error_code"]) == ("failed", 40910)
    assert daemon.request("GET", "/v1/cleaner?topic=turned").json["logs"] == []
    directory = daemon.log_dirs[0] / "turned-0"
    assert not list(directory.glob("*.cleaned"))
    assert contents(daemon, "turned") == before
    change["data"][0]["value"] = "compact"
    assert daemon.request("POST", path, change).status == 204
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    assert cleaned(daemon, "turned")["outcome"] == "cleaned"
    check_every_key(daemon, "turned", last, 0)


def test_the_number_of_threads_changes_in_the_middle_of_a_clean(crawling: Daemon) -> None:
    """M17: all threads begin afresh, as in Kafka; the log that was in work is cleaned by the next.
    The change is in force on its answer, and the clean in work costs nothing but its time.
    """
    daemon = crawling
    last = filled(daemon, "shared", ROUNDS)
    where = begin_clean(daemon, "shared")
    alter(daemon, log_cleaner_threads="2")
    operation = ended(daemon, where)
    assert (operation["state"], operation["error"]["error_code"]) == ("failed", 40910)
    threads = daemon.request("GET", "/v1/cleaner").json["threads"]
    assert [thread["alive"] for thread in threads] == [True, True]
    assert log_of(daemon, "shared")["state"] == "none"
    assert log_of(daemon, "shared")["failure"] is None, "an abort is no failure"
    check_every_key(daemon, "shared", last, 0)
    alter(daemon, log_cleaner_io_max_bytes_per_second=None)
    assert cleaned(daemon, "shared")["outcome"] == "cleaned"
    assert len(contents(daemon, "shared")) < ROUNDS * KEYS / 2
    check_every_key(daemon, "shared", last, 0)
