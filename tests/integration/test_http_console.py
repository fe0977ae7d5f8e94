"""Goal: every page of the console answers people and programs, safely, and its forms do what they
say.
Method: a real daemon with segments of several ages; each page as HTML, as its twin by ``.json`` and
by Accept, its headers and errors; forms of ours and of others. Its facts: tests/unit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin

import pytest

from kafkalog.console.assets import all_assets
from tests.integration.daemon import Daemon
from tests.integration.http_world import (
    Wire,
    append,
    batch_of,
    check_sealed,
    now_ms,
    refused,
    until,
)
from tests.integration.test_http_cleaner import SETTINGS, contents, filled as fill_dirty, settled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Answer

__all__ = ["SETTINGS"]  # of the daemon fixture

DAY = 86_400_000
HALF_SEGMENT = b"x" * 600_000  # two of them do not fit a segment of 1 MiB
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
JSON = {"Accept": "application/json"}
PAGES = [
    "/console",
    "/console/topics",
    "/console/topics/shown/partitions",
    "/console/topics/shown/partitions/0",
    "/console/topics/shown/partitions/0/records",
    "/console/topics/shown/partitions/0/offsets",
    "/console/topics/shown/partitions/0/delete-records",
    "/console/topics/shown/retention",
    "/console/retention",
    "/console/runbooks/disk-full",
    "/console/log-dirs",
    "/console/tasks",
    "/console/compaction",
    "/console/configs",
    "/console/topics/shown/configs",
    "/console/about",
]


@pytest.fixture(scope="module")
def filled(daemon: Daemon) -> Daemon:
    """The topic ``shown``: segments of 9, 8 and 1 days, and the active one."""
    daemon.create_topic("shown", 1, segment_bytes="1048576")
    for age_days in (9, 8, 1, 0):
        data = batch_of(HALF_SEGMENT, timestamp_ms=now_ms() - age_days * DAY)
        assert append(daemon, "shown", data).status == 200
    return daemon


@pytest.mark.parametrize("query", ["", "?refresh=true"])
def test_a_slash_behind_the_address(filled: Daemon, query: str) -> None:
    answer = filled.request("GET", f"/console/{query}", None, BROWSER)
    assert answer.status == 301
    location = answer.headers["Location"]
    assert urljoin(f"http://h/console/{query}", location) == f"http://h/console{query}"
    assert urljoin(f"http://h/in/front/console/{query}", location).startswith("http://h/in/front/c")
    refused(filled.request("GET", "/console/topics/"), 404, 404)
    refused(filled.request("GET", "/console/?other=1"), 400, 40005)


def test_a_browser_at_the_root_gets_the_console(daemon: Daemon) -> None:
    """Who names HTML first; all others get the JSON that the Bridge's clients read."""
    shown = daemon.request("GET", "/", None, BROWSER)
    assert (shown.status, shown.body) == (302, b"")
    assert shown.headers["Vary"] == "Accept"
    for address in ("http://h/", "http://h/in/front/"):
        assert urljoin(address, shown.headers["Location"]) == f"{address}console"
    for accept in ("", "*/*", "application/json", "application/json, text/html;q=0.5"):
        answer = daemon.request("GET", "/", None, {"Accept": accept} if accept else {})
        assert answer.status == 200, accept
        assert answer.json["bridge_version"]


def check_page(page: Answer, path: str) -> None:
    """It is HTML, whole, and names its twin."""
    assert page.status == 200, page.body
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    check_sealed(page)
    html = page.body.decode()
    assert html.count("<h1>") == 1
    assert f'href="{path}.json"' in html


@pytest.mark.parametrize("path", PAGES)
def test_a_page_and_its_twin(filled: Daemon, path: str) -> None:
    for headers in (BROWSER, {}):
        check_page(filled.request("GET", path, None, headers), path)
    twins = [
        filled.request("GET", f"{path}.json", None, BROWSER),
        filled.request("GET", path, None, JSON),
    ]
    for twin in twins:
        assert twin.status == 200, twin.body
        assert twin.headers["Content-Type"].startswith("application/json")
        assert twin.json["now_ms"] > 0
    assert twins[0].json.keys() == twins[1].json.keys()
    refused(filled.request("GET", path, None, {"Accept": "image/png"}), 406, 406)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_lets_nothing_foreign_in(filled: Daemon, path: str) -> None:
    page = filled.request("GET", path, None, BROWSER)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Cache-Control"] == "no-store"
    html = page.body.decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", html)
    sources = re.findall(r'<script src="([^"]+)"|<link [^>]*href="([^"]+)"', html)
    for source in {one or other for one, other in sources}:
        assert source.startswith("/console/assets/")
        assert filled.request("GET", source).status == 200


def test_errors_are_pages_for_people(filled: Daemon) -> None:
    for path, status, code in (
        ("/console/topics/none/partitions", 404, 40401),
        ("/console/topics/shown/partitions/9", 404, 40402),
        ("/console/topics/shown/partitions/x", 404, 404),
        ("/console/topics?no-such=1", 400, 40005),
        ("/console/topics?page=0", 400, 40005),
        ("/console/nothing", 404, 404),
    ):
        page = filled.request("GET", path, None, BROWSER)
        assert page.status == status
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert f"Error {code}, request {page.headers['X-Request-Id']}." in page.body.decode()
        refused(filled.request("GET", path, None, JSON), status, code)
    hostile = filled.request("GET", "/console/topics?%3Cscript%3E=1", None, BROWSER)
    assert "<script>" not in hostile.body.decode().replace("<script src", "")


def test_a_topic_whose_name_ends_as_a_twin_does(filled: Daemon) -> None:
    filled.create_topic("a", 1)
    filled.create_topic("a.json", 2)
    for topic, partitions in (("a", 1), ("a.json", 2)):
        twin = filled.request("GET", f"/console/topics/{topic}/partitions.json").json
        assert (twin["topic"], twin["partition_count"]) == (topic, partitions)


def test_files_are_kept_for_ever_and_asked_for_once(filled: Daemon) -> None:
    """A file's address is its content."""
    for name, asset in all_assets().items():
        path = f"/console/assets/{asset.digest}/{name}"
        answer = filled.request("GET", path)
        assert (answer.status, answer.body) == (200, asset.content)
        assert answer.headers["Content-Type"] == asset.content_type
        assert "immutable" in answer.headers["Cache-Control"]
        tag = {"If-None-Match": answer.headers["ETag"]}
        again = filled.request("GET", path, None, tag)
        assert (again.status, again.body) == (304, b"")
    refused(filled.request("GET", "/console/assets/0000000000000000/console.css"), 404, 404)
    refused(filled.request("GET", "/console/assets/0/..%2F..%2Fview.py"), 404, 404)


def test_the_form_of_retention(daemon: Daemon) -> None:
    """It deletes what the page says, and is not there any more then; for another origin nothing."""
    daemon.create_topic("retained", 1, segment_bytes="1048576")
    for age_days in (9, 0):
        data = batch_of(HALF_SEGMENT, timestamp_ms=now_ms() - age_days * DAY)
        assert append(daemon, "retained", data).status == 200
    page = "/console/topics/retained/partitions/0"
    html = daemon.request("GET", page, None, BROWSER).body.decode()
    assert f'<form method="post" action="{page}/retain">' in html
    fields = {"topic_id": daemon.request("GET", f"{page}.json").json["topic_id"]}
    foreign = FORM | {"Sec-Fetch-Site": "same-site"}
    body = urlencode(fields).encode()
    refused(daemon.request("POST", f"{page}/retain", body, foreign), 403, 40301)

    def states() -> list[str]:
        segments = daemon.request("GET", "/v1/topics/retained/partitions/0/segments").json
        return [each["state"] for each in segments["segments"]]

    assert states() == ["inactive", "active"]
    answer = posted(daemon, f"{page}/retain", fields)
    assert (answer.status, answer.headers["Location"]) == (303, page)
    cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
    told = daemon.request("GET", page, None, BROWSER | cookie)
    assert b"Retention deleted 1 segment of 586.0 KiB." in told.body
    assert states() == ["deleting", "active"]
    assert posted(daemon, f"{page}/retain", fields).status == 303
    html = daemon.request("GET", page, None, BROWSER).body.decode()
    assert "<form" not in html
    assert 'class="seg seg-deleting"' in html


FIRST_MS = 1_700_000_000_000


def partition_page(daemon: Daemon, topic: str) -> str:
    """Four records a second apart in segments of two; the partition's address."""
    daemon.create_topic(topic, 1, segment_bytes="1048576", retention_ms="-1")
    for number in range(4):
        data = batch_of(b"x" * 500_000, timestamp_ms=FIRST_MS + 1_000 * number)
        assert append(daemon, topic, data).status == 200
    return f"/console/topics/{topic}/partitions/0"


def test_the_wizard(daemon: Daemon) -> None:
    """Nothing goes before it was shown and confirmed in full; then just what was shown."""
    address = partition_page(daemon, "shrunk")
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
    cookie = {"Cookie": done.headers["Set-Cookie"].partition(";")[0]}
    led_to = daemon.request("GET", address, None, BROWSER | cookie)
    assert b"Records were deleted: shrunk-0 begins at offset 3 now." in led_to.body
    assert daemon.request("GET", f"{page}.json").json["log_start_offset"] == 3
    html = daemon.request("GET", f"{page}?offset=3", None, BROWSER)
    assert b"No records are before offset 3" in html.body
    assert posted(daemon, page, whole).status == 303  # twice is once
    told = refused(posted(daemon, page, whole | {"offset": "2"}), 410, 41001)
    assert "Nothing was deleted: shrunk-0 already begins at 3" in str(told)


def test_limits_are_tried_and_then_set(daemon: Daemon) -> None:
    """The page says what the next check would delete; nothing is changed without its name."""
    partition_page(daemon, "limited")
    page = "/console/topics/limited/retention"
    html = daemon.request("GET", page, None, BROWSER).body.decode()
    assert "Set these limits" not in html
    asked = f"{page}?retention.ms=1h&retention.bytes=1GiB"
    html = daemon.request("GET", asked, None, BROWSER).body.decode()
    assert "<code>retention.ms=1h</code>, <code>retention.bytes=1GiB</code>" in html
    view = daemon.request("GET", asked.replace("?", ".json?")).json
    assert f"The next check deletes {view['segments_next']} segment" in html
    fields = {"topic_id": view["topic_id"], "retention.ms": "1h", "retention.bytes": "1GiB"}
    fields |= {"cleanup.policy": "", "confirmation": "limited"}

    def limits() -> dict[str, str]:
        configs = daemon.request("GET", "/topics/limited").json["configs"]
        return {name: configs[name] for name in fields if "." in name}

    before = limits()
    refused(posted(daemon, page, fields | {"confirmation": ""}), 400, 40002)
    refused(posted(daemon, page, fields | {"topic_id": "A" * 22}), 404, 40401)
    refused(posted(daemon, page, fields | {"retention.ms": "", "retention.bytes": ""}), 400, 40002)
    wrong = urlencode(fields | {"retention.ms": "soon"}).encode()
    again = daemon.request("POST", page, wrong, FORM | BROWSER)
    assert (again.status, b'value="soon"' in again.body) == (400, True)
    foreign = FORM | {"Sec-Fetch-Site": "same-site"}
    refused(daemon.request("POST", page, urlencode(fields).encode(), foreign), 403, 40301)
    assert limits() == before
    done = posted(daemon, page, fields)
    assert (done.status, done.headers["Location"]) == (303, page)
    assert limits() == {
        "retention.ms": "3600000",
        "retention.bytes": "1073741824",
        "cleanup.policy": before["cleanup.policy"],
    }
    cookie = {"Cookie": done.headers["Set-Cookie"].partition(";")[0]}
    led_to = daemon.request("GET", page, None, BROWSER | cookie)
    assert b"limited has retention.ms=1h, retention.bytes=1GiB now." in led_to.body


def test_a_form_is_for_the_topic_that_was_shown(daemon: Daemon) -> None:
    """A page that is older than the topic of its name takes nothing from that one."""
    address = partition_page(daemon, "renewed")
    former = daemon.request("GET", f"{address}/delete-records.json").json["topic_id"]
    assert daemon.request("GET", f"{address}.json").json["topic_id"] == former
    assert daemon.request("DELETE", f"{daemon.cluster()}/topics/renewed").status == 204
    partition_page(daemon, "renewed")
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


def page_of(topic: str) -> str:
    return f"/console/topics/{topic}/partitions/0/records"


def test_the_switch(tmp_path: Path) -> None:
    """console.records=false leaves neither the page nor a link to it; the API reads on."""
    with Daemon(tmp_path, console_records="false") as daemon:
        daemon.create_topic("quiet", 1)
        refused(daemon.request("GET", f"{page_of('quiet')}.json"), 404, 404)
        partition = daemon.request("GET", "/console/topics/quiet/partitions/0", None, BROWSER)
        assert partition.status == 200
        assert b'/records"' not in partition.body  # records.css is no page of records
        for page in ("/console/records.json", "/console/topics/quiet/records.json"):
            refused(daemon.request("GET", page), 404, 404)
        for page in (f"{page_of('quiet')}/0.json", f"{page_of('quiet')}/0/value"):
            refused(daemon.request("GET", page), 404, 404)
        read = daemon.request("GET", "/v1/topics/quiet/partitions/0/records?from=earliest")
        assert read.status == 200


FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
COMPACTION = "/console/compaction"


def posted(daemon: Daemon, path: str, fields: dict[str, str]) -> Answer:
    return daemon.request("POST", path, urlencode(fields).encode(), FORM)


def test_a_trial(daemon: Daemon) -> None:
    fill_dirty(daemon, "tried")
    settled(daemon)
    before = contents(daemon, "tried")
    html = daemon.request("GET", COMPACTION, None, BROWSER).body.decode()
    assert f'action="{COMPACTION}/try"' in html
    begun = posted(daemon, f"{COMPACTION}/try", {"topic": "tried", "partition": "0"})
    assert begun.status == 303, begun.body
    address = begun.headers["Location"]
    until(lambda: b"would be removed." in daemon.request("GET", address, None, BROWSER).body)
    assert contents(daemon, "tried") == before


def test_forms_that_are_not_ours(daemon: Daemon) -> None:
    whole = {"topic": "t-none", "partition": "0"}
    for path in (f"{COMPACTION}/try", f"{COMPACTION}/retry"):
        foreign = FORM | {"Sec-Fetch-Site": "cross-site"}
        body = urlencode(whole).encode()
        refused(daemon.request("POST", path, body, foreign), 403, 40301)
        refused(daemon.request("POST", path, whole, {}), 415, 415)
        refused(daemon.request("POST", path, b"topic=t&topic=t&partition=0", FORM), 400, 40002)
        refused(daemon.request("POST", path, b"topic=%ff&partition=0", FORM), 400, 40002)
        refused(daemon.request("POST", path, b"", FORM), 400, 40002)
        refused(posted(daemon, path, {"topic": "t-none"}), 400, 40002)
        refused(posted(daemon, path, whole | {"more": "1"}), 400, 40002)
        refused(posted(daemon, path, whole | {"partition": "-1"}), 400, 40002)
        refused(posted(daemon, path, whole), 404, 40401)
    refused(daemon.request("GET", f"{COMPACTION}.json?topic=t-none"), 404, 40401)
    refused(daemon.request("GET", f"{COMPACTION}.json?hours=25"), 400, 40005)
