"""Goal: clients of the other REST proxies get the answers that docs/http-proxies.md states.
Method: a table of requests and answers (``pairs/``) against a running daemon, its differences
beside those of the page. What is no difference is asserted by the other test_http modules.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.access_world import access_settings, by
from tests.integration.daemon import ROOT, TEXT, V2, Daemon
from tests.integration.http_world import append, batch_of, check_sealed, refused
from tests.integration.pairs import errors, other_proxies, rest_proxy, union, v3
from tests.integration.pairs.pair import CONFLUENT, EMPTY, Pair, fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.daemon import Answer

SETTINGS = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "3",
    "http_trusted_proxies": "127.0.0.0/8",
    "socket_request_max_bytes": "3000000",
}
PAIRS = (*rest_proxy.PAIRS, *errors.PAIRS, *other_proxies.PAIRS, *v3.PAIRS, *union.PAIRS)
PAGE = ROOT / "docs/http-proxies.md"


@pytest.fixture(scope="module")
def open_daemon(daemon: Daemon) -> Daemon:
    """The topics and the group that the pairs ask for; no pair needs another one before it."""
    for name, partitions in (("t", 2), ("w", 4)):
        daemon.create_topic(name, partitions)
    for name in ("cut", "bytes", "large", "nulls", "rich", "inout", "falsy", "tombstone"):
        daemon.create_topic(name)
    daemon.create_topic("idempotent")
    daemon.create_topic("keyed", cleanup_policy="compact")
    daemon.create_topic("small", max_message_bytes="500")
    header = [{"key": "h", "value": "eA=="}]
    records = [{"value": f"v{n}", "timestamp": 1000 * (n + 1), "partition": 0} for n in range(3)]
    body = {"records": [{**records[0], "headers": header}, *records[1:]]}
    assert daemon.request("POST", "/topics/t", body, {"Content-Type": TEXT}).status == 200
    assert append(daemon, "cut", batch_of(*[b"v"] * 10)).status == 200
    start = {"partitions": [{"topic": "cut", "partition": 0, "offset": 3}]}
    assert daemon.request("POST", "/v1/records:delete", start).status == 200
    assert append(daemon, "bytes", batch_of(b"\xff\xfe")).status == 200
    for _ in range(2):
        daemon.produce_text("large", "x" * 1000)
    rich = {"records": [rest_proxy.RICH]}
    assert daemon.request("POST", "/topics/rich", rich, {"Content-Type": TEXT}).status == 200
    for step in v3.MEMBER:
        answer = daemon.request(step.method, step.path, step.body, {"Content-Type": step.type})
        assert answer.status < 300, answer.body
    return daemon


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One with rules of access."""
    root = tmp_path_factory.mktemp("guarded")
    with Daemon(root, **access_settings(root)) as one:
        yield one


class Asked:
    """A pair with its places filled in."""

    def __init__(self, daemon: Daemon, pair: Pair, number: int) -> None:
        self._daemon = daemon
        self._pair = pair
        self._number = number
        self._places: dict[str, Callable[[], str]] = {
            "{cluster}": daemon.cluster,
            "{i}": self._instance,
        }
        self._known: dict[str, str] = {}

    def _instance(self) -> str:
        """A consumer in a group of its own, unless the row wants a particular one."""
        config = CONFLUENT if self._pair.consumer is None else self._pair.consumer
        path = f"/consumers/pair-{self._number}"
        answer = self._daemon.request("POST", path, dict(config), {"Content-Type": V2})
        assert answer.status == 200, answer.body
        return f"{path}/instances/{answer.json['instance_id']}"

    def _filled(self, path: str) -> str:
        for place, make in self._places.items():
            if place in path:
                if place not in self._known:
                    self._known[place] = make()
                path = path.replace(place, self._known[place])
        return path

    def prepare(self) -> None:
        """What must be so before."""
        for step in self._pair.given:
            headers = {"Content-Type": step.type}
            path = self._filled(step.path)
            answer = self._daemon.request(step.method, path, step.body, headers)
            assert answer.status < 300, (step, answer.status, answer.body)

    def ask(self) -> Answer:
        """The pair's own request; without a type nothing says what its body is."""
        pair = self._pair
        headers = {**pair.headers, **by(pair.by or None)}
        if pair.type is not None:
            headers["Content-Type"] = pair.type
        return self._daemon.request(pair.method, self._filled(pair.path), pair.body, headers)


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=lambda number: PAIRS[number].name)
def test_pair(open_daemon: Daemon, guarded: Daemon, number: int) -> None:
    """Status, headers and shape of the answer."""
    pair = PAIRS[number]
    asked = Asked(open_daemon if pair.by is None else guarded, pair, number)
    asked.prepare()
    answer = asked.ask()
    assert answer.status == pair.status, answer.body
    check_sealed(answer)
    for name, shape in pair.answer_headers.items():
        found = answer.headers.get(name, "")
        bare = found.split(";")[0] if name == "Content-Type" and isinstance(shape, str) else found
        fault = fault_of(shape, bare, name)
        assert fault is None, fault
    if pair.answer is ...:
        return
    if pair.answer == EMPTY:
        assert answer.body == b""
        return
    fault = fault_of(pair.answer, answer.json)
    assert fault is None, (fault, answer.json)
    if pair.status >= 400:
        refused(answer, pair.status, answer.json["error_code"])


def code_of(pair: Pair) -> object:
    """The number of an error that the pair wants."""
    return pair.answer.get("error_code") if isinstance(pair.answer, dict) else None


def differences_of_the_page() -> list[str]:
    """First cells of the tables of docs/http-proxies.md."""
    rows = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    cells = [row.removeprefix("| ") for row in rows if row.startswith("| ")]
    return [cell for cell in cells if cell != "What"]


def test_every_difference_is_on_the_page() -> None:
    """What a pair marks as different is a row of the page, each row of which has its pair."""
    for pair in PAIRS:
        ours = (pair.status, code_of(pair))
        theirs = pair.theirs if isinstance(pair.theirs, tuple) else (pair.theirs, ours[1])
        if pair.theirs is not None and theirs != ours:
            assert pair.differs, pair.name
    page = differences_of_the_page()
    assert len(page) == len(set(page))
    told = {pair.differs for pair in PAIRS if pair.differs}
    assert told - set(page) == set(), "not on the page"
    assert set(page) - told - ONLY_TOLD.keys() == set(), "no pair shows it"
    assert ONLY_TOLD.keys() <= set(page)
    for name, function in ONLY_TOLD.items():
        assert f"def {function}(" in _all_tests(), name


# Differences that no pair can show, each with the test that does.
ONLY_TOLD = {
    "overload": "test_requests_in_work_are_bounded",
    "`fetch.min.bytes` that is not said": "test_a_waiting_poll_is_woken",
    "partitions out of service": "test_v2_metadata",
}


def _all_tests() -> str:
    return "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize(
    ("shape", "value", "is_fit"),
    [
        (int, 1, True), (int, True, False), (bool, True, True), (1, True, False), (..., None, True),
        (re.compile("a+"), "aa", True), (re.compile("a"), "ab", False), ([int], [1, 2], True),
        ([int], [], False), ([int], [1, "x"], False), ((int, str), [1, "x"], True),
        ((int,), [1, 2], False), ({"a": int}, {"a": 1}, True),
        ({"a": int}, {"a": 1, "b": 2}, False),
        ({"a": int, ...: ...}, {"a": 1, "b": 2}, True), ({"a": int}, {}, False), ((), [], True),
    ],
    ids=str,
)  # fmt: skip
def test_shapes(shape: Any, value: object, is_fit: bool) -> None:
    """The judge of the answers is judged."""
    assert (fault_of(shape, value) is None) is is_fit
