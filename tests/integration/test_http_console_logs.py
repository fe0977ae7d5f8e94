"""Goal: the pages of offsets and of deleting records do over HTTP what they say.
Method: a real daemon; places beside the API, the wizard from its question to the deleted records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tests.integration.http_world import Wire, append, batch_of, refused
from tests.integration.test_http_console import BROWSER
from tests.integration.test_http_console_compaction import FORM, posted
from tests.integration.test_http_v3 import cluster

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}
FIRST_MS = 1_700_000_000_000


def filled(daemon: Daemon, topic: str) -> str:
    """Four records a second apart in segments of two; the partition's address."""
    daemon.create_topic(topic, 1, segment_bytes="1048576", retention_ms="-1")
    for number in range(4):
        data = batch_of(b"x" * 500_000, timestamp_ms=FIRST_MS + 1_000 * number)
        assert append(daemon, topic, data).status == 200
    return f"/console/topics/{topic}/partitions/0"


def test_offsets_and_times(daemon: Daemon) -> None:
    """The place of an offset is the segment's of the API, a time's offset list-offsets'."""
    address = filled(daemon, "placed")
    segments = daemon.request("GET", "/v1/topics/placed/partitions/0/segments").json["segments"]
    for segment in segments:
        for offset in range(segment["base_offset"], segment["next_offset"]):
            found = daemon.request("GET", f"{address}/offsets.json?offset={offset}").json["found"]
            assert found["base_offset"] == segment["base_offset"]
            assert found["next_offset"] == segment["next_offset"]
    found = daemon.request("GET", f"{address}/offsets.json?timestamp={FIRST_MS + 1}").json["found"]
    assert (found["offset"], found["timestamp_ms"]) == (1, FIRST_MS + 1_000)
    html = daemon.request("GET", f"{address}/offsets?offset=3", None, BROWSER).body.decode()
    assert "<h2>Offset 3</h2>" in html
    assert daemon.request("GET", f"{address}/offsets.json?offset=99").json["found"] is None
    for query in ("offset=-1", "offset=1&timestamp=2", "timestamp=yesterday"):
        refused(daemon.request("GET", f"{address}/offsets.json?{query}"), 400, 40005)


def test_the_wizard(daemon: Daemon) -> None:
    """Nothing goes before it was shown and confirmed in full; then just what was shown."""
    address = filled(daemon, "shrunk")
    page = f"{address}/delete-records"
    preview = daemon.request("GET", f"{page}.json?offset=3").json["preview"]
    assert preview["offsets_going"] == 3
    html = daemon.request("GET", f"{page}?timestamp={FIRST_MS + 2_500}", None, BROWSER)
    assert b'name="offset" value="3"' in html.body
    assert b"refresh" not in html.body
    refused(daemon.request("GET", f"{page}?offset=3&refresh=true"), 400, 40005)
    shown = daemon.request("GET", f"{page}.json").json["topic_id"]
    assert f'name="topic_id" value="{shown}"'.encode() in html.body
    whole = {"topic_id": shown, "offset": "3", "confirmation": "shrunk-0"}
    refused(posted(daemon, page, whole | {"confirmation": "shrunk"}), 400, 40002)
    refused(posted(daemon, page, {"offset": "3", "confirmation": "shrunk-0"}), 400, 40002)
    refused(posted(daemon, page, whole | {"offset": "-1"}), 400, 40002)
    refused(posted(daemon, page, whole | {"offset": "9"}), 416, 41602)
    foreign = FORM | {"Sec-Fetch-Site": "same-site"}
    refused(daemon.request("POST", page, urlencode(whole).encode(), foreign), 403, 40301)
    assert daemon.request("GET", f"{page}.json").json["log_start_offset"] == 0
    done = posted(daemon, page, whole)
    assert (done.status, done.headers["Location"]) == (303, address)
    assert daemon.request("GET", f"{page}.json").json["log_start_offset"] == 3
    html = daemon.request("GET", f"{page}?offset=3", None, BROWSER)
    assert b"No records are before offset 3" in html.body
    assert posted(daemon, page, whole).status == 303  # twice is once
    told = refused(posted(daemon, page, whole | {"offset": "2"}), 410, 41001)
    assert "Nothing was deleted: shrunk-0 already begins at 3" in str(told)


def test_a_form_is_for_the_topic_that_was_shown(daemon: Daemon) -> None:
    """A page that is older than the topic of its name takes nothing from that one."""
    address = filled(daemon, "renewed")
    former = daemon.request("GET", f"{address}/delete-records.json").json["topic_id"]
    assert daemon.request("GET", f"{address}.json").json["topic_id"] == former
    assert daemon.request("DELETE", f"{cluster(daemon)}/topics/renewed").status == 204
    filled(daemon, "renewed")
    fields = {"topic_id": former, "offset": "3", "confirmation": "renewed-0"}
    told = refused(posted(daemon, f"{address}/delete-records", fields), 404, 40401)
    assert "recreated" in str(told)
    refused(posted(daemon, f"{address}/retain", {"topic_id": former}), 404, 40401)
    refused(posted(daemon, f"{address}/retain", {}), 400, 40002)
    seen = daemon.request("GET", f"{address}/delete-records.json").json
    assert (seen["log_start_offset"], seen["topic_id"] == former) == (0, False)
    fields["topic_id"] = seen["topic_id"]
    assert posted(daemon, f"{address}/delete-records", fields).status == 303
    assert posted(daemon, f"{address}/retain", {"topic_id": seen["topic_id"]}).status == 303
    assert daemon.request("GET", f"{address}.json").json["log_start_offset"] == 3


def test_a_large_form_is_refused_before_it_is_read(daemon: Daemon) -> None:
    """Nobody fills the memory with what is to be two fields."""
    daemon.create_topic("formed", 1)
    head = (
        b"POST /console/topics/formed/partitions/0/delete-records HTTP/1.1\r\nHost: x\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n"
    )
    chunk = b"4001\r\n" + b"x" * 0x4001 + b"\r\n"  # one byte more than a form may have
    for rest in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n" + chunk):
        with Wire(daemon) as wire:
            wire.send(head + rest)
            answer = refused(wire.read_answer(), 413, 41302)
            assert "16384 bytes at most" in str(answer)
