"""Goal: fetch answers what is there, waits no longer than it must, serves nothing it should not.
Method: v2 and raw fetches against a real daemon, long polls on threads, times with wide margins.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import BINARY, Answer, Daemon
from tests.integration.http_world import (
    append,
    batch_of,
    delete_records,
    others_in_work,
    read_batches,
    refused,
    until,
)
from tests.partition_world import records_of, split_batches

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {"http_max_wait_ms": "20000", "log_initial_task_delay_ms": "600000"}


def records(daemon: Daemon, topic: str, query: str, accept: str = BINARY) -> Answer:
    path = f"/topics/{topic}/partitions/0/records?{query}"
    return daemon.request("GET", path, headers={"Accept": accept})


class Waiting:
    """A request on a thread of its own; its answer and how long it took."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self.answer: Answer | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        started = time.monotonic()
        self.answer = self._call()
        self.seconds = time.monotonic() - started

    def join(self) -> Answer:
        self._thread.join(60)
        assert self.answer is not None
        return self.answer


def wait_until_waiting(daemon: Daemon, count: int = 1) -> None:
    """Until so many requests are in work besides the look itself."""
    until(lambda: others_in_work(daemon) >= count, "nobody waits")


def test_an_append_wakes_a_waiting_fetch(daemon: Daemon) -> None:
    """M01: both routes are answered by the append, long before their time is over."""
    daemon.create_topic("woken")
    v2 = Waiting(lambda: records(daemon, "woken", "offset=0&timeout=20000"))
    raw = Waiting(lambda: read_batches(daemon, "woken", 0, "&max_wait_ms=20000"))
    wait_until_waiting(daemon, 2)
    daemon.produce_text("woken", "hello")
    assert [r["value"] for r in v2.join().json] == ["aGVsbG8="]
    assert records_of(raw.join().body)[0].value == b"hello"
    assert v2.seconds < 10
    assert raw.seconds < 10


def test_a_wait_ends_empty(daemon: Daemon) -> None:
    daemon.create_topic("idle")
    waited = Waiting(lambda: records(daemon, "idle", "offset=0&timeout=300"))
    answer = waited.join()
    assert (answer.status, answer.json) == (200, [])
    assert answer.headers["Kafka-Next-Offset"] == "0"
    assert 0.29 <= waited.seconds < 10
    raw = read_batches(daemon, "idle", 0, "&max_wait_ms=50")
    assert (raw.status, raw.body) == (204, b"")
    assert raw.headers["Kafka-Next-Offset"] == "0"
    assert raw.headers["Kafka-Up-To-Date"] == "true"


def test_min_bytes_waits_for_enough(daemon: Daemon) -> None:
    daemon.create_topic("enough")
    daemon.produce_text("enough", "x" * 100)
    waited = Waiting(lambda: read_batches(daemon, "enough", 0, "&max_wait_ms=20000&min_bytes=300"))
    wait_until_waiting(daemon)
    daemon.produce_text("enough", "y" * 100)
    daemon.produce_text("enough", "z" * 100)
    assert [r.value[:1] for r in records_of(waited.join().body) if r.value] in (
        [b"x", b"y"],
        [b"x", b"y", b"z"],
    )
    assert waited.seconds < 10


def test_next_offset_walks_the_whole_log(daemon: Daemon) -> None:
    daemon.create_topic("walked", internal_segment_bytes="4000", index_interval_bytes="100")
    for number in range(60):
        daemon.produce_text("walked", f"{number}a", f"{number}b", f"{number}c")
    assert len(list((daemon.log_dirs[0] / "walked-0").glob("*.log"))) > 1
    offset, seen = 0, []
    while offset < 180:
        answer = records(daemon, "walked", f"offset={offset}&max_bytes=7")
        seen += [r["offset"] for r in answer.json]
        offset = int(answer.headers["Kafka-Next-Offset"])
    assert seen == list(range(180))
    offset, count = 0, 0
    while offset < 180:
        raw = read_batches(daemon, "walked", offset, "&max_bytes=300")
        count += len(records_of(raw.body))
        assert raw.headers["Kafka-Base-Offset"] == str(offset)
        offset = int(raw.headers["Kafka-Next-Offset"])
    assert count == 180


def test_each_record_in_its_own_format(daemon: Daemon) -> None:
    """format=auto shows what any producer wrote; a string that was stored as JSON and base64 are
    marked. Members stand as in other pages.
    """
    daemon.create_topic("mixed")
    daemon.produce_text("mixed", "third", "{no", '{"n": 1.0}', '"third"', "")
    octets = {"records": [{"key": "/w==", "value": None}, {"key": "aw==", "value": "AAE="}]}
    daemon.request("POST", "/topics/mixed", octets, {"Content-Type": BINARY})
    headers = [{"key": "h", "value": "eA=="}]
    document = {"records": [{"key": "k", "value": {"n": [1]}, "headers": headers}]}
    json_type = "application/vnd.kafka.json.v2+json"
    daemon.request("POST", "/topics/mixed", document, {"Content-Type": json_type})
    answer = records(daemon, "mixed", "offset=0&format=auto", "*/*")
    assert answer.headers["Content-Type"].startswith(json_type)
    assert answer.headers["Kafka-Next-Offset"] == "8"
    shown = [
        (each["key"], each["value"], each.get("key_format"), each.get("value_format"))
        for each in answer.json
    ]
    assert shown == [
        (None, "third", None, None),
        (None, "{no", None, None),
        (None, {"n": 1.0}, None, None),
        (None, "third", None, "json"),
        (None, "", None, None),
        ("/w==", None, "base64", None),
        ("k", "AAE=", None, "base64"),
        ("k", {"n": [1]}, "json", None),
    ]
    assert b'"value":{"n": 1.0},' in answer.body
    timestamp = answer.json[-1]["timestamp"]
    assert answer.body.endswith(
        b'{"topic":"mixed","key":"k","value":{"n": [1]},"partition":0,"offset":7,"timestamp":%d,'
        b'"headers":[{"key":"h","value":"eA=="}],"key_format":"json"}]' % timestamp
    )
    one = daemon.request("GET", "/topics/mixed/partitions/0/messages?offset=3&format=auto")
    assert [each["value"] for each in one.json] == ["third"]
    small = records(daemon, "mixed", "offset=0&format=auto&max_bytes=8", "*/*")
    assert (len(small.json), small.headers["Kafka-Next-Offset"]) == (2, "2")
    wrong = refused(records(daemon, "mixed", "offset=0&format=json"), 406, 40602)
    assert str(wrong["message"]).endswith(" or format=auto.")
    refused(records(daemon, "mixed", "offset=0&format=yaml", "*/*"), 406, 40601)


def test_offsets_out_of_range(daemon: Daemon) -> None:
    """v2 says 400/40002 as the ecosystem, the native route 410/41001 and 416/41601."""
    daemon.create_topic("ranged")
    daemon.produce_text("ranged", "a", "b", "c")
    delete_records(daemon, ("ranged", 0, 2))
    assert records(daemon, "ranged", "offset=3").json == []
    assert read_batches(daemon, "ranged", 3).status == 204
    for offset, status, code in ((1, 410, 41001), (0, 410, 41001), (4, 416, 41601)):
        body = refused(read_batches(daemon, "ranged", offset), status, code)
        details = body["details"]
        assert isinstance(details, dict)
        assert (details["log_start_offset"], details["log_end_offset"]) == (2, 3)
        refused(records(daemon, "ranged", f"offset={offset}"), 400, 40002)
    refused(read_batches(daemon, "ranged", 1), 410, 41001)
    refused(read_batches(daemon, "ranged", 2**63 - 1), 416, 41601)
    refused(read_batches(daemon, "nope", 0), 404, 40401)
    refused(records(daemon, "nope", "offset=0"), 404, 40402)
    refused(daemon.request("GET", "/v1/topics/ranged/partitions/7/batches?offset=0"), 404, 40402)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "offset=-1",
        "offset=9223372036854775808",
        "offset=%201",
        "offset=" + "9" * 5000,
        "offset=0&max_bytes=-1",
        "offset=0&timeout=-5",
        "offset=0&isolation=dirty",
    ],
)
def test_parameters_out_of_range(daemon: Daemon, query: str) -> None:
    if "numbers" not in daemon.request("GET", "/topics").json:
        daemon.create_topic("numbers")
    refused(records(daemon, "numbers", query), 400, 40005)
    raw = query.replace("timeout", "max_wait_ms")
    answer = daemon.request("GET", f"/v1/topics/numbers/partitions/0/batches?{raw}")
    refused(answer, 400, 40005)


def test_formats_that_are_none(daemon: Daemon) -> None:
    daemon.create_topic("shown")
    daemon.produce_text("shown", "a")
    refused(records(daemon, "shown", "offset=0&format=xml"), 406, 40601)
    refused(records(daemon, "shown", "offset=0", "text/html"), 406, 406)


def test_a_flipped_bit_is_never_served(daemon: Daemon) -> None:
    """A corrupt batch first in line is 500/50010 without its path; else the answer ends before."""
    daemon.create_topic("rotten")
    for letter in "abc":
        daemon.produce_text("rotten", letter * 100)
    sizes = [len(b) for b in split_batches(read_batches(daemon, "rotten", 0).body)]
    path = daemon.log_dirs[0] / "rotten-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[sizes[0] + 80] ^= 4
    path.write_bytes(data)
    good = read_batches(daemon, "rotten", 0)
    assert [r.offset for r in records_of(good.body)] == [0]
    assert good.headers["Kafka-Next-Offset"] == "1"
    assert [r["offset"] for r in records(daemon, "rotten", "offset=0").json] == [0]
    for answer in (read_batches(daemon, "rotten", 1), records(daemon, "rotten", "offset=1")):
        body = refused(answer, 500, 50010)
        assert str(daemon.root) not in json.dumps(body)
        details = body["details"]
        assert isinstance(details, dict)
        assert (details["base_offset"], details["last_offset"]) == (1, 1)
    assert [r["offset"] for r in records(daemon, "rotten", "offset=2").json] == [2]
    assert daemon.request("GET", "/readyz").status == 200


def test_large_answers_on_one_connection(daemon: Daemon) -> None:
    """Head and body are written apart; each answer is whole and the next one follows it."""
    daemon.create_topic("large")
    values = [os.urandom(700_000) for _ in range(4)]
    for value in values:
        assert append(daemon, "large", batch_of(value)).status == 200
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        for method in ("GET", "HEAD", "GET"):
            path = "/v1/topics/large/partitions/0/batches?offset=0&max_bytes=10000000"
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200
            assert int(answer.headers["Content-Length"]) > 2_800_000
            assert [r.value for r in records_of(body)] == (values if method == "GET" else [])
            path = "/topics/large/partitions/0/records?offset=0&max_bytes=10000000"
            connection.request(method, path, headers={"Accept": BINARY})
            body = connection.getresponse().read()
            if method == "GET":
                assert [len(r["value"]) for r in json.loads(body)] == [933_336] * 4
            else:
                assert body == b""
    finally:
        connection.close()
