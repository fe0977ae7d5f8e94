"""Goal: no query, id or Accept header gets past its rules, and what is made here is read here.
Method: random and nearly right texts; only the errors of the register may come out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.wire.record_text import event_id, parse_event_id
from kafkalog.server.fetch.query import (
    OF_ONE,
    OF_SEVERAL,
    OFFSETS,
    RecordQuery,
    last_seen_of,
    partitions_of,
    positions_of,
)
from kafkalog.server.fetch.stream import OFFERED
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import accepts_gzip, negotiate

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

POSITIONS = st.dictionaries(
    st.integers(0, INT32_MAX), st.integers(0, INT64_MAX), min_size=1, max_size=5
)
WORDS = st.sampled_from(
    ["", "0", "-1", "1:2", "0:1,2:3", "earliest", "json", "key,value", "1e3", "٣", "9" * 25, "x"]
)
NAMES = sorted({each.name for each in (*OF_ONE, *OF_SEVERAL)})
QUERIES = st.dictionaries(st.sampled_from(NAMES), WORDS | st.text(max_size=8), max_size=6)


def asked(query: dict[str, str], headers: dict[str, str] | None = None) -> web.Request:
    return make_mocked_request("GET", f"/v1?{urlencode(query)}", headers=headers or {})


def outcome(read: Callable[..., object], *arguments: object) -> object:
    """What it gives, or the error of the register that it raises."""
    try:
        return read(*arguments)
    except ApiError as error:
        return error


@given(QUERIES, WORDS | st.text(alphabet="0123456789:,-x ", max_size=20))
def test_only_known_errors(query: dict[str, str], last_id: str) -> None:
    """Each reader by itself: 40005 or a value in its range."""
    request = asked(query, {"Last-Event-ID": last_id})
    for read in (
        RecordQuery.read,
        partitions_of,
        lambda request: last_seen_of(request, (0, 1, 2)),
        lambda request: positions_of(OFFSETS, request),
    ):
        found = outcome(read, request)
        if isinstance(found, ApiError):
            assert found.entry.error_code == 40005
        elif isinstance(found, RecordQuery):
            assert found.max_records >= 1
            assert found.shape.fields
            assert sum(name in query for name in ("offset", "timestamp", "tail", "from")) == 1
        elif isinstance(found, dict):
            assert all(0 <= number <= INT32_MAX for number in found)
            assert all(0 <= offset <= INT64_MAX for offset in found.values())
        elif isinstance(found, list):
            assert found == sorted(set(found))
        else:
            assert found is None


@given(POSITIONS)
def test_ids_are_read_back(positions: dict[int, int]) -> None:
    """What a stream calls a place is that place to the next one."""
    assert parse_event_id(event_id(positions)) == positions


@given(st.text(alphabet="0123456789:,-", max_size=30) | st.text(max_size=20))
def test_other_ids_are_refused(text: str) -> None:
    """Nothing but an id in its one spelling, leading zeros aside, has a meaning."""
    found = parse_event_id(text)
    if found is not None:
        pairs = [each.split(":") for each in text.split(",")]
        assert {int(number): int(last) + 1 for number, last in pairs} == found


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*OFFERED, "*/*", "application/*", "text/*", "text/html", "", ";"]),
            st.sampled_from(["", ";q=0", ";q=1", ";q=0.5", ";q=x", ";charset=utf-8"]),
        ),
        max_size=5,
    )
)
def test_accept_gives_what_is_offered_and_not_refused(ranges: list[tuple[str, str]]) -> None:
    """A type that is named with q=0 never comes; one that alone is named always does."""
    accept = ", ".join(media + quality for media, quality in ranges)
    chosen = outcome(negotiate, accept, OFFERED)
    if isinstance(chosen, ApiError):
        assert chosen.entry.error_code == 406
        first = ranges[0] if ranges else None
        assert first not in [(media, quality) for media in OFFERED for quality in ("", ";q=1")]
        return
    assert chosen in OFFERED
    named = [quality for media, quality in ranges if media == chosen]
    assert not named or named[0] not in (";q=0", ";q=x")


def test_gzip_is_accepted_as_it_is_said() -> None:
    """By name or by any, unless its quality is 0."""
    for text in ("gzip", "br, gzip;q=0.1", "*", "identity;q=0, *;q=0.5", "GZIP"):
        assert accepts_gzip(text), text
    for text in ("", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "identity"):
        assert not accepts_gzip(text), text
