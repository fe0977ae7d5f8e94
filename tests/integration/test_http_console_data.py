"""Goal: whoever works with records and groups on the console gets what the API gives: searches end,
forms append and reset just what they say, and hostile input changes nothing.
Method: a real daemon; each page as HTML and JSON, each form as browsers, others and attackers send
it.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from tests.integration.daemon import TEXT, V2
from tests.integration.http_world import check_sealed, refused
from tests.integration.test_http_console import BROWSER, FORM, JSON, check_page, posted

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

TOPIC = "data"
GROUP = "dat/a <b>"
GROUP_PATH = f"/console/groups/{quote(GROUP, safe='')}"
PAGES = [
    "/console/records",
    f"/console/topics/{TOPIC}/records",
    f"/console/topics/{TOPIC}/partitions/0/records/0",
    f"/console/topics/{TOPIC}/produce",
    "/console/groups",
    f"{GROUP_PATH}/offsets",
    f"{GROUP_PATH}/reset",
]


@pytest.fixture(scope="module")
def filled(daemon: Daemon) -> Daemon:
    """Two partitions with 30 records, every third with ``needle``; a group that read some."""
    daemon.create_topic(TOPIC, 2)
    for number in range(30):
        value = {"number": number, "text": "needle" if number % 3 == 0 else "hay"}
        produce(daemon, TOPIC, number % 2, f"key-{number}", json.dumps(value))
    commit(daemon, GROUP, TOPIC, {0: 4, 1: 15})
    return daemon


def produce(daemon: Daemon, topic: str, partition: int, key: str, value: str) -> None:
    record = {"key": key, "value": value}
    path = f"/topics/{topic}/partitions/{partition}"
    body = {"records": [record]}
    answer = daemon.request("POST", path, body, {"Content-Type": TEXT})
    assert answer.status == 200, answer.body


def commit(daemon: Daemon, group: str, topic: str, offsets: dict[int, int]) -> None:
    entries = [{"topic": topic, "partition": at, "offset": to} for at, to in offsets.items()]
    path = f"/v1/groups/{quote(group, safe='')}/offsets"
    answer = daemon.request("PUT", path, {"offsets": entries})
    assert answer.status == 204, answer.body


def committed(daemon: Daemon, group: str) -> dict[int, int]:
    path = f"/v1/groups/{quote(group, safe='')}/offsets"
    found = daemon.request("GET", path).json["offsets"]
    return {each["partition"]: each["offset"] for each in found}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_and_its_twin(filled: Daemon, path: str) -> None:
    check_page(filled.request("GET", path, None, BROWSER), path)
    twin = filled.request("GET", path, None, JSON)
    assert twin.json.keys() == filled.request("GET", f"{path}.json").json.keys()
    refused(filled.request("GET", path, None, {"Accept": "image/png"}), 406, 406)
    refused(filled.request("GET", f"{path}?none=1"), 400, 40005)


def search(daemon: Daemon, **query: object) -> Any:
    answer = daemon.request("GET", f"/console/topics/{TOPIC}/records.json?{urlencode(query)}")
    assert answer.status == 200, answer.body
    return answer.json


def test_a_search(filled: Daemon) -> None:
    """All that holds the text, newest first, a page after the other."""
    found, cursor, steps = list[int](), "", 0
    while steps == 0 or cursor:
        view = search(filled, text="NEEDLE", count=3, cursor=cursor)
        found += [json.loads(each["value"]["text"])["number"] for each in view["records"]]
        cursor, steps = view["cursor"] or "", steps + 1
    assert sorted(found, reverse=True) == list(range(27, -1, -3))
    assert steps >= 4
    assert len(search(filled, text="key-2", **{"in": "key"})["records"]) == 11
    assert search(filled, text="key-2", **{"in": "value"})["records"] == []
    assert {each["partition"] for each in search(filled, partition=1)["records"]} == {1}


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"partition": "2"}, 404, 40402),
        ({"partition": "x"}, 400, 40005),
        ({"offset": "1,000"}, 400, 40005),
        ({"offset": "-1"}, 400, 40005),
        ({"timestamp": "yesterday"}, 400, 40005),
        ({"offset": "1", "timestamp": "1"}, 400, 40005),
        ({"cursor": "0"}, 400, 40005),
        ({"cursor": "0:1,0:1"}, 400, 40005),
        ({"in": "all"}, 400, 40005),
        ({"order": "up"}, 400, 40005),
        ({"count": "201"}, 400, 40005),
        ({"text": "x" * 501}, 400, 40005),
        ({"show": "octal"}, 400, 40005),
    ],
)
def test_what_cannot_be_searched(
    filled: Daemon, query: dict[str, str], status: int, code: int
) -> None:
    path = f"/console/topics/{TOPIC}/records"
    refused(filled.request("GET", f"{path}.json?{urlencode(query)}"), status, code)
    page = filled.request("GET", f"{path}?{urlencode(query)}", None, BROWSER)
    assert page.status == status
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"


def test_empty_fields_of_the_form_say_nothing(filled: Daemon) -> None:
    view = search(filled, text="", partition="", offset="", timestamp="", cursor="")
    assert len(view["records"]) == 25
    refused(filled.request("GET", "/console/topics/none/records.json"), 404, 40401)
    refused(filled.request("GET", f"/console/topics/{TOPIC}/partitions/0/records/x.json"), 404, 404)


def test_the_value_of_a_record_as_a_file(filled: Daemon) -> None:
    record = f"/console/topics/{TOPIC}/partitions/1/records"
    answer = filled.request("GET", f"{record}/0/value")
    assert json.loads(answer.body)["number"] == 1
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{TOPIC}-1-0"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    refused(filled.request("GET", f"{record}/99/value"), 404, 404)
    refused(filled.request("GET", f"{record}/-1/value"), 404, 404)
    refused(filled.request("GET", f"{record}/99999999999999999999/value"), 404, 404)
    refused(
        filled.request("GET", f"/console/topics/{TOPIC}/partitions/9/records/0/value"), 404, 40402
    )


# ---- the form that appends

EMPTY = {
    "key_format": "text",
    "key": "",
    "value_format": "text",
    "value": "",
    "headers": "",
    "partition": "",
}


def appended(daemon: Daemon, topic: str, **typed: str) -> tuple[int, int]:
    """Partition and offset of what the form appended."""
    answer = posted(daemon, f"/console/topics/{topic}/produce", EMPTY | typed)
    assert answer.status == 303, answer.body
    place = answer.headers["Location"]
    cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
    html = daemon.request("GET", place, None, BROWSER | cookie).body.decode()
    view = daemon.request("GET", place.replace("?", ".json?")).json
    partition, offset = view["partition"], view["offset"]
    link = f'href="/console/topics/{topic}/partitions/{partition}/records/{offset}"'
    assert f"Appended to partition {partition} at offset {offset}." in html
    assert link in html
    alone = daemon.request("GET", place, None, BROWSER).body.decode()
    assert "Appended" not in alone  # an address may come from anybody
    assert link not in alone
    return partition, offset


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [
        ({"value": "plain"}, None, b"plain"),
        ({"value": ""}, None, b""),
        ({"key": "k", "value": "two\r\nlines"}, b"k", b"two\nlines"),
        ({"value": "<script>\u202e\x00"}, None, "<script>\u202e\x00".encode()),
        ({"value_format": "json", "value": '{"a": 1.50}\r\n'}, None, b'{"a": 1.50}\n'),
        ({"value_format": "base64", "value": " /w\r\n== "}, None, b"\xff"),
        ({"key": "k", "value_format": "null"}, b"k", None),
        ({"key_format": "base64", "key": "AA==", "value": "v"}, b"\x00", b"v"),
        ({"key_format": "json", "key": '"k"', "value": "v"}, b'"k"', b"v"),
    ],
)
def test_what_is_typed_is_appended(
    daemon: Daemon, typed: dict[str, str], key: bytes | None, value: bytes | None
) -> None:
    if daemon.request("GET", "/console/topics/typed/partitions.json").status == 404:
        daemon.create_topic("typed", 3)
    partition, offset = appended(daemon, "typed", **typed)
    page = f"/console/topics/typed/partitions/{partition}/records/{offset}.json?show=hex"
    record = daemon.request("GET", page).json["record"]
    for name, wanted in (("key", key), ("value", value)):
        found = record[name]
        assert (None if found is None else bytes.fromhex(found["text"])) == wanted


def test_bytes_that_are_not_escaped_are_utf8(daemon: Daemon) -> None:
    """As escaped ones are; other bytes are no form, and nothing is appended."""
    daemon.create_topic("raw", 1)
    path = "/console/topics/raw/produce"
    body = urlencode(EMPTY).encode().replace(b"&value=", b"&value=%s")
    refused(daemon.request("POST", path, body % b"\xff", FORM), 400, 40002)
    assert daemon.request("POST", path, body % "ü€".encode(), FORM).status == 303
    page = "/console/topics/raw/partitions/0/records/0.json"
    assert daemon.request("GET", page).json["record"]["value"]["text"] == "ü€"


def test_a_partition_and_headers_are_as_typed(daemon: Daemon) -> None:
    daemon.create_topic("chosen", 3)
    headers = "trace: 4711\r\n\r\nempty:\r\nurl: http://a/b"
    assert appended(daemon, "chosen", value="v", partition="2", headers=headers) == (2, 0)
    page = daemon.request("GET", "/console/topics/chosen/partitions/2/records/0.json").json
    shown = [(each["name"]["text"], each["value"]["text"]) for each in page["record"]["headers"]]
    assert shown == [("trace", "4711"), ("empty", ""), ("url", "http://a/b")]
    by_key = {appended(daemon, "chosen", key="same", value="v")[0] for _ in range(3)}
    assert len(by_key) == 1
    assert len({appended(daemon, "chosen", value="v")[0] for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("typed", "status", "code", "words"),
    [
        ({"value_format": "json", "value": "{"}, 400, 40002, "no JSON"),
        ({"value_format": "json", "value": ""}, 400, 40002, "no JSON"),
        ({"value_format": "json", "value": "[" * 100_000}, 400, 40002, "no JSON"),
        ({"value_format": "base64", "value": "a"}, 400, 40002, "no base64"),
        ({"value_format": "base64", "value": "ü"}, 400, 40002, "no base64"),
        ({"value_format": "null", "value": "text"}, 400, 40002, "null value has no text"),
        ({"value_format": "yaml"}, 400, 40002, "value_format is"),
        ({"key_format": "null", "key": "x"}, 400, 40002, "key_format is"),
        ({"headers": "one\ntwo: 2"}, 400, 40002, "line 1 of the headers"),
        ({"headers": ": value"}, 400, 40002, "line 1 of the headers"),
        ({"headers": "a: b\n" * 101}, 400, 40002, "100 headers at most"),
        (
            {"value_format": "json", "value": "{", "key_format": "base64", "key": "ü"}
            | {"headers": "a\nb: 2\nc", "partition": "x"},
            400,
            40002,
            "; lines 1, 3 of the headers are not name: value; a partition is a number, or empty.",
        ),
        ({"partition": "x"}, 400, 40002, "partition is a number"),
        ({"partition": "-1"}, 400, 40002, "partition is a number"),
        ({"partition": "3"}, 404, 40402, ""),
        ({"value": "x" * (1 << 20)}, 413, 41301, ""),
    ],
)
def test_what_cannot_be_appended(
    daemon: Daemon, typed: dict[str, str], status: int, code: int, words: str
) -> None:
    """Programs get the error; people the form with what they typed, and why."""
    if daemon.request("GET", "/console/topics/refused/partitions.json").status == 404:
        daemon.create_topic("refused", 1)
    path, fields = "/console/topics/refused/produce", EMPTY | typed
    assert words in str(refused(posted(daemon, path, fields), status, code))
    page = daemon.request("POST", path, urlencode(fields).encode(), FORM | BROWSER)
    assert page.status == status
    check_sealed(page)
    html = page.body.decode()
    assert words in html
    assert 'role="alert"' in html
    assert f'<option value="{fields["value_format"]}" selected>' in html or "yaml" in str(typed)
    assert f">{fields['headers']}</textarea>" in html
    end = daemon.request("GET", "/console/topics/refused/partitions/0.json").json
    assert end["log_end_offset"] == 0


def test_forms_that_are_not_ours(daemon: Daemon) -> None:
    daemon.create_topic("guarded", 1)
    path, body = "/console/topics/guarded/produce", urlencode(EMPTY).encode()
    refused(daemon.request("POST", path, body, FORM | {"Sec-Fetch-Site": "cross-site"}), 403, 40301)
    refused(daemon.request("POST", path, EMPTY, {}), 415, 415)
    refused(daemon.request("POST", path, body + b"&value=2", FORM), 400, 40002)
    refused(daemon.request("POST", path, body + b"&acks=0", FORM), 400, 40002)
    refused(daemon.request("POST", path, body.replace(b"value=", b"value=%ff"), FORM), 400, 40002)
    refused(daemon.request("POST", path, b"value=" + b"x" * (3 << 20), FORM), 413, 41302)
    refused(posted(daemon, "/console/topics/guarded-none/produce", EMPTY), 404, 40401)
    assert daemon.request("GET", "/v1/topics/guarded-none").status == 404
    end = daemon.request("GET", "/console/topics/guarded/partitions/0.json").json
    assert end["log_end_offset"] == 0


# ---- groups


def test_a_group(filled: Daemon) -> None:
    listed = filled.request("GET", "/console/groups.json?name_contains=dat%2Fa").json["groups"]
    assert [(each["group"], each["lag"], each["partitions"]) for each in listed] == [(GROUP, 11, 2)]
    view = filled.request("GET", f"{GROUP_PATH}/offsets.json").json
    assert [(each["offset"], each["lag"]) for each in view["partitions"]] == [(4, 11), (15, 0)]
    refused(filled.request("GET", "/console/groups/none/offsets.json"), 404, 40405)
    refused(filled.request("GET", "/console/groups/none/reset.json"), 404, 40405)


def reset_fields(to: str, value: str = "", topic: str = "") -> dict[str, str]:
    return {"to": to, "value": value, "topic": topic}


@pytest.mark.parametrize(
    ("to", "value", "after"),
    [
        ("earliest", "", [0, 0]),
        ("latest", "", [3, 3]),
        ("offset", "2", [2, 2]),
        ("offset", "999", [3, 3]),
        ("shift", "-1", [1, 0]),
        ("timestamp", "2100-01-01T00:00:00Z", [3, 3]),
    ],
)
def test_a_reset_does_what_its_preview_said(
    daemon: Daemon, to: str, value: str, after: list[int]
) -> None:
    if daemon.request("GET", "/console/topics/again/partitions.json").status == 404:
        daemon.create_topic("again", 2)
        for number in range(6):
            produce(daemon, "again", number % 2, "k", "v")
    commit(daemon, "back", "again", {0: 2, 1: 1})
    page = "/console/groups/back/reset"
    fields = reset_fields(to, value)
    query = urlencode(fields)
    preview = daemon.request("GET", f"{page}.json?{query}").json["partitions"]
    assert [each["new_offset"] for each in preview] == after
    assert committed(daemon, "back") == {0: 2, 1: 1}
    html = daemon.request("GET", f"{page}?{query}", None, BROWSER).body.decode()
    assert '<form method="post" action="/console/groups/back/reset">' in html
    done = posted(daemon, page, fields)
    assert (done.status, done.headers["Location"]) == (303, "/console/groups/back/offsets")
    assert committed(daemon, "back") == dict(enumerate(after))


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        (reset_fields("offset", "x"), 400, 40002),
        (reset_fields("offset", "-1"), 400, 40002),
        (reset_fields("shift", ""), 400, 40002),
        (reset_fields("shift", "9" * 19), 400, 40002),
        (reset_fields("timestamp", "soon"), 400, 40005),
        (reset_fields("start"), 400, 40002),
        (reset_fields("earliest", topic="none"), 404, 40401),
        (reset_fields("earliest", topic="no/ne"), 400, 40002),
    ],
)
def test_what_cannot_be_reset(
    filled: Daemon, fields: dict[str, str], status: int, code: int
) -> None:
    before = committed(filled, GROUP)
    refused(posted(filled, f"{GROUP_PATH}/reset", fields), status, code)
    if fields["to"] != "start":
        answer = filled.request("GET", f"{GROUP_PATH}/reset.json?{urlencode(fields)}")
        refused(answer, status, code)
    foreign = FORM | {"Sec-Fetch-Site": "cross-site"}
    body = urlencode(reset_fields("earliest")).encode()
    refused(filled.request("POST", f"{GROUP_PATH}/reset", body, foreign), 403, 40301)
    assert committed(filled, GROUP) == before


@pytest.mark.parametrize(
    ("to", "value", "why"),
    [
        ("shift", "", "to=shift needs a number of offsets"),
        ("offset", "-1", "to=offset needs an offset"),
        ("timestamp", '"<b>soon', "timestamp is milliseconds since 1970"),
    ],
)
def test_what_was_typed_stays_beside_the_fault(
    filled: Daemon, to: str, value: str, why: str
) -> None:
    query = urlencode(reset_fields(to, value, TOPIC))
    page = filled.request("GET", f"{GROUP_PATH}/reset?{query}", None, BROWSER)
    assert page.status == 400
    check_sealed(page)
    html = page.body.decode()
    assert f'value="{escape(value)}"' in html.replace("&#34;", "&quot;")
    assert f'<option value="{to}" selected>' in html
    assert f"<option selected>{TOPIC}</option>" in html
    assert why in html[html.index('id="value-fault"') :]
    assert "2. Preview" not in html


def test_what_a_form_did_is_said_once(daemon: Daemon) -> None:
    """By a cookie for the next page, which no link and no other page can set."""
    daemon.create_topic("told", 1)
    produce(daemon, "told", 0, "k", "v")
    commit(daemon, "told", "told", {0: 0})
    done = posted(daemon, "/console/groups/told/reset", reset_fields("latest"))
    cookie, _, attributes = done.headers["Set-Cookie"].partition("; ")
    address = "/console/groups/told/offsets"
    assert f"Path={address};" in attributes
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes.split("; "))
    words = "The offsets of 1 partition were reset to the log end."
    page = daemon.request("GET", address, None, BROWSER | {"Cookie": cookie})
    assert words in page.body.decode()
    assert page.headers["Set-Cookie"].startswith("kafkalog_done=; ")
    assert "Max-Age=0" in page.headers["Set-Cookie"]
    text, _, seal = cookie.partition("=")[2].partition(".")
    forged = [f"{b'hello'.hex()}.{seal}", f"{text}.{'0' * 64}", text, "\xff.\xff", ""]
    for path, value in [(address, each) for each in forged] + [("/console/groups", text)]:
        headers = BROWSER | {"Cookie": f"kafkalog_done={value}"}
        page = daemon.request("GET", path, None, headers)
        assert page.status == 200
        assert words not in page.body.decode()
        assert "hello" not in page.body.decode()
    other = daemon.request("GET", "/console/groups", None, BROWSER | {"Cookie": cookie})
    assert words not in other.body.decode()
    assert "Set-Cookie" not in other.headers
    gone = posted(daemon, "/console/groups/told/delete", {"topic": "", "confirmation": "told"})
    cookie = gone.headers["Set-Cookie"].partition("; ")[0]
    page = daemon.request("GET", "/console/groups", None, BROWSER | {"Cookie": cookie})
    assert "Group told was deleted." in page.body.decode()
    page = daemon.request("GET", address, None, BROWSER)
    assert b'<a href="/console/groups">groups</a>' in page.body


def test_a_reset_of_a_part_says_so(daemon: Daemon) -> None:
    """The others are reset; who asked must not take it for all."""
    daemon.create_topic("partly", 2)
    for partition in (0, 0, 1):
        produce(daemon, "partly", partition, "k", "v")
    commit(daemon, "half", "partly", {0: 2})
    path, fields = "/console/groups/half/reset", reset_fields("shift", "-1", "partly")
    answer = posted(daemon, path, fields)
    assert answer.status >= 400, answer.headers
    assert "Only 1 of 2 partitions were reset: partly-1" in answer.json["message"]
    assert committed(daemon, "half") == {0: 1}
    page = daemon.request("POST", path, urlencode(fields).encode(), FORM | BROWSER)
    assert page.status == answer.status
    assert "Only 1 of 2 partitions were reset" in page.body.decode()
    assert "not shown" not in page.body.decode()


def test_a_group_with_members_is_left_alone(daemon: Daemon) -> None:
    daemon.create_topic("joined", 1)
    commit(daemon, "busy", "joined", {0: 0})
    made = daemon.request("POST", "/consumers/busy", {"name": "one"}, {"Content-Type": V2})
    assert made.status == 200, made.body
    html = daemon.request("GET", "/console/groups/busy/reset?to=earliest", None, BROWSER).body
    assert b"The group has 1 member" in html
    assert b'method="post"' not in html
    refused(posted(daemon, "/console/groups/busy/reset", reset_fields("earliest")), 409, 40911)
    delete = {"topic": "", "confirmation": "busy"}
    refused(posted(daemon, "/console/groups/busy/delete", delete), 409, 40911)
    gone = daemon.request("DELETE", "/consumers/busy/instances/one", None, {"Content-Type": V2})
    assert gone.status == 204
    assert posted(daemon, "/console/groups/busy/delete", delete).status == 303


def test_deleted_offsets(daemon: Daemon) -> None:
    """Of a topic, then of the group; only when its name was typed."""
    for topic in ("kept", "left"):
        daemon.create_topic(topic, 1)
        commit(daemon, "short", topic, {0: 0})
    path = "/console/groups/short/delete"
    refused(posted(daemon, path, {"topic": "", "confirmation": "shor"}), 400, 40002)
    refused(posted(daemon, path, {"confirmation": "short"}), 400, 40002)
    done = posted(daemon, path, {"topic": "left", "confirmation": "short"})
    assert (done.status, done.headers["Location"]) == (303, "/console/groups/short/offsets")
    assert daemon.request("GET", "/console/groups/short/offsets.json").json["topics"] == ["kept"]
    done = posted(daemon, path, {"topic": "", "confirmation": "short"})
    assert (done.status, done.headers["Location"]) == (303, "/console/groups")
    refused(posted(daemon, path, {"topic": "", "confirmation": "short"}), 404, 40405)
