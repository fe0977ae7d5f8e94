"""Goal: the console shows a partition's records to who may read them, and to nobody when off.
Method: real daemons; the page beside the records API, a transaction that is aborted, the switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.client_world import client_of
from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of, refused
from tests.integration.test_http_console import BROWSER
from tests.integration.test_http_sinks import begun, transactional

if TYPE_CHECKING:
    from pathlib import Path


def page_of(topic: str) -> str:
    return f"/console/topics/{topic}/partitions/0/records"


def test_the_page_is_the_log(daemon: Daemon) -> None:
    """What the API reads stands on the page, and places lead where they say."""
    daemon.create_topic("browsed", 1)
    times = [1_700_000_000_000 + 1_000 * number for number in range(3)]
    for value, moment in zip((b"first <b>", b"\x00\xff", None), times, strict=True):
        sent = batch_of(value, keys=[b"key"], timestamp_ms=moment)
        assert append(daemon, "browsed", sent).status == 200
    path = page_of("browsed")
    shown = daemon.request("GET", f"{path}.json").json["records"]
    query = "/v1/topics/browsed/partitions/0/records?offset=0&value_format=base64"
    stored = daemon.request("GET", query).json
    listed = stored["records"] if isinstance(stored, dict) else stored
    assert [each["offset"] for each in shown] == [each["offset"] for each in listed] == [0, 1, 2]
    assert [each["timestamp_ms"] for each in shown] == times
    assert [each["value"] and each["value"]["text"] for each in shown] == [
        "first <b>",
        "00 ff",
        None,
    ]
    assert [each["kind"] for each in shown] == ["record", "record", "tombstone"]
    html = daemon.request("GET", path, None, BROWSER).body.decode()
    assert "first &lt;b&gt;" in html
    assert "tombstone" in html
    for query, first in (("offset=1", 1), (f"timestamp={times[2]}", 2), ("count=1", 2)):
        assert daemon.request("GET", f"{path}.json?{query}").json["records"][0]["offset"] == first
    for query in ("offset=1&before=2", "timestamp=soon", "count=201", "offset=-1", "show=words"):
        refused(daemon.request("GET", f"{path}.json?{query}"), 400, 40005)
    partition = daemon.request("GET", "/console/topics/browsed/partitions/0", None, BROWSER)
    assert f'href="{path}"' in partition.body.decode()


def test_an_aborted_transaction(daemon: Daemon) -> None:
    """Open records are said to be open, aborted ones aborted, and the marker is shown."""
    with client_of("sync", f"http://127.0.0.1:{daemon.port}") as client:
        client.create_topic("undone", partitions=1)
        producer = begun(client, "undone", 1)
        client.append_batches("undone", 0, transactional(producer, 0, b"a", b"b"))
        before = daemon.request("GET", f"{page_of('undone')}.json").json["records"]
        assert [each["transaction"] for each in before] == ["open", "open"]
        client.abort_sink("undone", 1)
    after = daemon.request("GET", f"{page_of('undone')}.json").json["records"]
    assert [each["transaction"] for each in after] == ["aborted", "aborted", None]
    assert (after[2]["kind"], after[2]["control"]) == ("control", "ABORT")


def test_the_switch(tmp_path: Path) -> None:
    """console.records=false leaves neither the page nor a link to it; the API reads on."""
    with Daemon(tmp_path, console_records="false") as daemon:
        daemon.create_topic("quiet", 1)
        refused(daemon.request("GET", f"{page_of('quiet')}.json"), 404, 404)
        partition = daemon.request("GET", "/console/topics/quiet/partitions/0", None, BROWSER)
        assert partition.status == 200
        assert b"/records" not in partition.body
        read = daemon.request("GET", "/v1/topics/quiet/partitions/0/records?from=earliest")
        assert read.status == 200
