"""Goal: whatever JSON, query or file is sent, the answer is one of ours, soon, and no defect.
Method: documents that the API's own description makes for each route, spoilt in a place or two;
queries of escapes, empties, repetitions and lengths; the files of delete-records, over HTTP and by
both commands. Few of each here, more in `make campaign`, many with HYPOTHESIS_PROFILE=deep.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from kafkalog import __version__
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.errors import REGISTER
from kafkalog.server.protocol.openapi import describe
from tests.integration.daemon import V2
from tests.integration.hostile_json import example_of, examples, hostile
from tests.integration.http_world import check_sealed
from tests.integration.test_cli_over_http import run_plain

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

    from tests.integration.daemon import Answer, Daemon

SETTINGS = {
    "http_max_wait_ms": "50",
    "max_partitions_per_topic": "8",
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "3",
    # A config that a spoilt body may set for the whole daemon is one that harms nobody here.
    "log_initial_task_delay_ms": "86400000",
}
DOCUMENT: Any = describe(ROUTE_TABLES, version=__version__)
COMPONENTS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
WITH_JSON = sorted(
    name
    for name, (_, _, operation) in OPERATIONS.items()
    if any(media.endswith("json") for media in operation.get("requestBody", {}).get("content", ()))
)
# A process each, which other tests count.
WITH_QUERY = sorted(OPERATIONS.keys() - {"dumpSegment"})
ANSWER_SECONDS = 20
# Of the long form of each test.
LONG = (pytest.mark.campaign, pytest.mark.timeout(3600))
PARTS = {
    "topic": "fuzz",
    "partition": "0",
    "group": "fuzzers",
    "instance": "one",
    "broker": "1",
    "config": "flush.ms",
    "base_offset": "0",
}
FILE = {"partitions": [{"topic": "fuzz", "partition": 0, "offset": 0}], "version": 1}


@pytest.fixture(scope="module")
def fuzzed(daemon: Daemon) -> Daemon:
    """A topic with records, and a consumer in a group."""
    daemon.create_topic("fuzz", 2)
    daemon.produce_text("fuzz", "a", "b", "c")
    config = {"name": "one", "auto.commit.enable": "false"}
    created = daemon.request("POST", "/consumers/fuzzers", config, {"Content-Type": V2})
    assert created.status == 200
    return daemon


def path_of(daemon: Daemon, path: str) -> str:
    """With something that is there in each place."""
    (cluster,) = daemon.request("GET", "/v3/clusters").json["data"]
    parts = {**PARTS, "cluster_id": cluster["cluster_id"]}
    if "broker" in path:
        parts["config"] = "log.retention.bytes"
    return re.sub(r"\{([a-z_]+)\}", lambda found: parts.get(found[1], "none"), path)


def judge(answer: Answer) -> None:
    """One of ours: no defect, and every refusal in the one shape."""
    assert answer.status < 500 or answer.status == 501, answer.body
    check_sealed(answer)
    if answer.status >= 400:
        error = answer.json
        assert REGISTER[error["error_code"]].status == answer.status
        assert error["request_id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize("count", [25, pytest.param(150, marks=LONG)])
@pytest.mark.parametrize("name", WITH_JSON)
def test_bodies(fuzzed: Daemon, name: str, count: int) -> None:
    """Types, depths, numbers, NaN, members twice, surrogates, NUL, BOM, other encodings, cuts."""
    method, path, operation = OPERATIONS[name]
    path = path_of(fuzzed, path)
    content = operation["requestBody"]["content"]
    media = sorted(each for each in content if each.endswith("json"))
    document = example_of(content[media[0]]["schema"], COMPONENTS)

    @examples(count)
    @given(hostile(document), st.sampled_from(media))
    def ask(body: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        judge(fuzzed.request(method, path, body, headers, timeout=ANSWER_SECONDS))

    ask()


VALUES = (
    *("", "0", "1", "-1", "+1", "%2B1", "1.0", "1e3", "0x10", "true", "TRUE", "maybe", "null"),
    *("9223372036854775807", "9223372036854775808", "9" * 5000, "%EF%BC%91", "%D9%A1"),
    *("earliest", "latest", "max_timestamp", "1970-01-01T00:00:00Z", "2026-13-45T99:99:99Z"),
    *("binary", "json", "read_committed", "all", "fuzz", "fuzz,none", "..%2F..%2Fetc"),
    *("%00", "%0A", "%0d%0aX: y", "%ff", "%ED%A0%80", "%C0%AF", "%F0%9F%98%80", "%", "%z", "%%"),
    *("%u0041", "a%20b", "+", "=", "==", "&&", ";", "%26", "%3D", "#", "?", "[]", "{}"),
    *("61", "zz", "ff" * 2000, "x" * 7000, "x" * 9000),
)


@st.composite
def queries(draw: st.DrawFn, names: list[str]) -> str:
    """Pairs in any order and number: names of the operation and others, values of every kind."""
    odd = ("", "offset", "x", "OFFSET", "offset[]", "%6Fffset", "__proto__")
    pair = st.tuples(st.sampled_from((*names, *names, *odd)), st.sampled_from(VALUES))
    pairs = draw(st.lists(pair, min_size=1, max_size=4))
    between = draw(st.sampled_from(("&", "&", "&&", ";")))
    joined = between.join(f"{name}={value}" for name, value in pairs)
    return "?" + joined.replace(" ", "%20").replace("#", "%23")


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=LONG)])
@pytest.mark.parametrize("name", WITH_QUERY)
def test_queries(fuzzed: Daemon, name: str, count: int) -> None:
    """Escapes, empties, repetitions, lengths."""
    method, path, operation = OPERATIONS[name]
    path = path_of(fuzzed, path)
    names = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    headers, body = {}, None
    if content:
        media = min(content)
        headers, body = {"Content-Type": media}, b"{}"

    @examples(count)
    @given(queries(names or ["page_size"]))
    def ask(query: str) -> None:
        judge(fuzzed.request(method, path + query, body, headers, timeout=ANSWER_SECONDS))

    ask()


JSON_VALUES: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FILES = hostile(FILE) | JSON_VALUES.map(lambda value: repr(value).encode("utf-8", "surrogatepass"))


def ask_with_files(daemon: Daemon, count: int) -> None:
    @examples(count)
    @given(FILES, st.sampled_from(("application/json", "text/plain")))
    def ask(file: bytes, accept: str) -> None:
        headers = {"Content-Type": "application/json", "Accept": accept}
        judge(daemon.request("POST", "/v1/records:delete", file, headers, timeout=ANSWER_SECONDS))

    ask()


def run_with_files(daemon: Daemon, place: Path, count: int) -> None:
    """By our command and by Kafka's: an exit status and words, no traceback."""
    path = place / "offsets.json"
    where = f"127.0.0.1:{daemon.port}"
    commands = (
        ("records", "delete", "--url", f"http://{where}"),
        ("compat", "kafka-delete-records", "--bootstrap-server", where),
    )

    @examples(count)
    @given(FILES, st.sampled_from(commands))
    def run(file: bytes, command: tuple[str, ...]) -> None:
        path.write_bytes(file)
        result = run_plain(*command, "--offset-json-file", str(path))
        assert result.returncode in (0, 1, 3), result
        assert result.returncode == 0 or (result.stdout + result.stderr).strip()
        assert b"Traceback" not in result.stderr

    run()


@pytest.mark.parametrize(("asked", "run"), [(60, 15), pytest.param(500, 40, marks=LONG)])
def test_files_of_delete_records(fuzzed: Daemon, tmp_path: Path, asked: int, run: int) -> None:
    """M10: each way in."""
    ask_with_files(fuzzed, asked)
    run_with_files(fuzzed, tmp_path, run)
