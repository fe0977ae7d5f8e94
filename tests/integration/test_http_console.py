"""Goal: every page of the console answers people and programs the same facts, safely.
Method: a real daemon with segments of several ages; each page as HTML, as its twin by ``.json``
and by Accept, its headers, its errors, and its facts beside the API's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from kafkalog.console.assets import all_assets
from tests.integration.http_world import append, batch_of, check_sealed, now_ms, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"log_initial_task_delay_ms": "86400000", "log_cleaner_enable": "false"}
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
    """Who types a slash too many meets the console, behind a proxy's prefix, too."""
    answer = filled.request("GET", f"/console/{query}", None, BROWSER)
    assert answer.status == 301
    location = answer.headers["Location"]
    assert urljoin(f"http://h/console/{query}", location) == f"http://h/console{query}"
    assert urljoin(f"http://h/in/front/console/{query}", location).startswith("http://h/in/front/c")
    refused(filled.request("GET", "/console/topics/"), 404, 404)
    refused(filled.request("GET", "/console/?other=1"), 400, 40005)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_and_its_twin(filled: Daemon, path: str) -> None:
    """One view, two renderers."""
    for headers in (BROWSER, {}):
        page = filled.request("GET", path, None, headers)
        assert page.status == 200, page.body
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        check_sealed(page)
        html = page.body.decode()
        assert html.count("<h1>") == 1
        assert f'href="{path}.json"' in html
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
    """No script, style or frame of anybody else, and no inline ones."""
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


def test_the_strip_is_the_segments_api(filled: Daemon) -> None:
    """The picture's facts are those of ``GET .../segments``."""
    api = filled.request("GET", "/v1/topics/shown/partitions/0/segments").json
    twin = filled.request("GET", "/console/topics/shown/partitions/0.json").json
    same = ("base_offset", "next_offset", "size_bytes", "largest_timestamp_ms", "rule", "keeper")
    assert [[each[name] for name in same] for each in twin["segments"]] == [
        [each[name] for name in same] for each in api["segments"]
    ]
    # The moment of the next check is told from now on, so that two looks differ by their distance.
    for one, other in zip(twin["segments"], api["segments"], strict=True):
        assert (one["due"] is None) is (other["due"] is None)
        if one["due"] is not None:
            assert one["due"]["latest_ms"] == pytest.approx(other["due"]["latest_ms"], abs=60_000)
    assert [each["letter"] for each in twin["segments"]] == ["X", "X", "K", "A"]
    html = filled.request("GET", "/console/topics/shown/partitions/0", None, BROWSER).body.decode()
    assert re.findall(r'class="seg seg-([a-z]+)"', html) == [
        each["state"] for each in twin["segments"]
    ]
    assert "limit 7 d" in html


def test_what_if_is_the_simulation(filled: Daemon) -> None:
    """The form asks the planner; a config that is wrong is told, and nothing changes."""
    path = "/console/topics/shown/retention"
    query = "retention.ms=43200000&retention.bytes=&horizon_days=2"
    twin = filled.request("GET", f"{path}.json?{query}").json
    body = {"topic": "shown", "configs": {"retention.ms": "43200000"}, "horizon_ms": 2 * DAY}
    simulated = filled.request("POST", "/v1/retention:simulate", body).json["partitions"][0]
    entry = twin["partitions"][0]
    assert twin["configs"] == {"retention.ms": "43200000"}
    assert [each["base_offset"] for each in entry["departures"]] == [
        each["base_offset"] for each in simulated["segments"]
    ]
    assert entry["bytes_left"] == simulated["bytes_left"]
    assert entry["segments_left"] == simulated["segments_left"]
    wrong = filled.request("GET", f"{path}?retention.ms=soon", None, BROWSER)
    assert wrong.status == 400
    assert "<h1>" in wrong.body.decode()
    refused(filled.request("GET", f"{path}.json?retention.ms=soon"), 400, 40002)
    listed = filled.request("GET", "/v1/topics/shown/partitions/0/segments").json["segments"]
    assert len(listed) == 4


def test_errors_are_pages_for_people(filled: Daemon) -> None:
    """Who looks at pages is told in words, a program by the one shape; one status."""
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
    """No topic hides behind another's twin."""
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


def test_a_form_is_for_this_origin_alone(daemon: Daemon) -> None:
    """Goal: no page of anybody else deletes with a browser's credentials; ours does what it says.
    Method: a POST as browsers send it from elsewhere, by both headers; then from the page itself.
    """
    topic = "retained"
    daemon.create_topic(topic, 1, segment_bytes="1048576")
    for age_days in (9, 0):
        data = batch_of(HALF_SEGMENT, timestamp_ms=now_ms() - age_days * DAY)
        assert append(daemon, topic, data).status == 200
    page = f"/console/topics/{topic}/partitions/0"
    html = daemon.request("GET", page, None, BROWSER).body.decode()
    assert f'<form method="post" action="{page}/retain">' in html
    form = f"topic_id={daemon.request('GET', f'{page}.json').json['topic_id']}".encode()
    typed = {"Content-Type": "application/x-www-form-urlencoded"}
    own = f"http://127.0.0.1:{daemon.port}"
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Origin": own},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://page.example"},
        {"Origin": "null"},
    ):
        refused(daemon.request("POST", f"{page}/retain", form, typed | headers), 403, 40301)
    segments = f"/v1/topics/{topic}/partitions/0/segments"
    assert [each["state"] for each in daemon.request("GET", segments).json["segments"]] == [
        "inactive",
        "active",
    ]
    answer = daemon.request("POST", f"{page}/retain", form, typed | {"Origin": own})
    assert (answer.status, answer.headers["Location"]) == (303, page)
    assert [each["state"] for each in daemon.request("GET", segments).json["segments"]] == [
        "deleting",
        "active",
    ]
    same = typed | {"Sec-Fetch-Site": "same-origin"}
    again = daemon.request("POST", f"{page}/retain", form, same)
    assert again.status == 303
    html = daemon.request("GET", page, None, BROWSER).body.decode()
    assert "<form" not in html
    assert 'class="seg seg-deleting"' in html
