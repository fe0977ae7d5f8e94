"""Goal: each form of an answer has the records that a loop over them has, whatever bounds it; no
query gets past its rules; documents mean the same together, alone and in any pieces.
Method: records, queries and documents by chance beside plain twins.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import example, given, strategies as st

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_builder import RecordColumns, build_plain_batch
from kafkalog.format.records.record import Record as StoredRecord, iterate_records
from kafkalog.format.records.record_batch import Codec, is_control, is_transactional, read_header
from kafkalog.format.wire.json_documents import Concatenated, Lines
from kafkalog.format.wire.json_page import JsonPage, write_page
from kafkalog.format.wire.record_text import (
    ArrayRecords,
    EventRecords,
    LineRecords,
    event_id,
    parse_event_id,
)
from kafkalog.format.wire.record_writer import (
    FIELDS,
    FORMATS,
    Bounds,
    PageBuffer,
    RecordRead,
    RecordShape,
    UndecodableRecord,
)
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
from kafkalog.server.produce.json_body import (
    DecodedGroup,
    Formats,
    NativeDialect,
    decode_each,
    decode_together,
    parse_array,
)
from kafkalog.server.produce.v3 import V3Dialect
from kafkalog.server.protocol.bodies import NotJson
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EmbeddedFormat, accepts_gzip, negotiate
from tests.integration.stream_world import parse_events
from tests.naive.json_documents import Documents, split_concatenated, split_lines
from tests.property.shaped_batches import ABORTED_PRODUCER, BatchShape, batch_shapes, batches_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.format.wire.record_writer import RecordWriter
    from kafkalog.server.produce.json_body import Dialect


NO_BOUND = (1 << 63) - 1
BYTES = st.none() | st.sampled_from(
    [
        b"1",
        b'"a\\n"',
        b'{"a":\r\n[1]}',
        b"text\nwith line",
        b"\xff",
        b"",
        b'"a\nb"',
        b"\xe2\x82\xac",
    ]
)
GOOD = st.none() | st.sampled_from([b"1", b'"x"', b"[ ]", b'{"k":\n2}'])
RECORDS = st.lists(st.tuples(BYTES | GOOD, GOOD, st.integers(0, 50)), min_size=1, max_size=4)
SHAPES = batch_shapes(RECORDS, [Codec.NONE, Codec.NONE, Codec.ZSTD], 50)
BOUNDS = st.builds(
    Bounds,
    max_records=st.integers(1, 8) | st.just(NO_BOUND),
    max_bytes=st.integers(0, 40) | st.just(NO_BOUND),
    until_timestamp_ms=st.integers(0, 50) | st.just(NO_BOUND),
)
SHAPE = st.builds(
    RecordShape,
    key_format=st.sampled_from(FORMATS),
    value_format=st.sampled_from(FORMATS),
    fields=st.frozensets(st.sampled_from(FIELDS), min_size=1),
)
Record = tuple[bytes | None, bytes | None, int]  # key, value, timestamp
Batches = list[BatchShape[Record]]


class Outcome(NamedTuple):
    """What an answer had, how it ended, and where the next one begins."""

    records: list[dict[str, Any]]
    undecodable: tuple[int, str] | None
    is_end: bool
    next_offset: int
    least_next_offset: int  # lower, where it matters to nobody if what is left out is passed again


def columns_of(records: list[Record], _: int) -> RecordColumns:
    """The first one of a batch has a header."""
    keys, values, times = zip(*records, strict=True)
    headers: list[list[tuple[bytes, bytes | None]]] = [[(b"h", b"\0")], *([] for _ in keys[1:])]
    return RecordColumns.of(list(keys), list(values), list(times), headers)


def shown_as(data: bytes | None, form: str) -> Any:
    """A key or value; ValueError when it does not fit."""
    if data is None:
        return None
    if form == "base64":
        return base64.b64encode(data).decode()
    text = bytes(data).decode()
    return text if form == "text" else json.loads(text)


def entry_of(record: StoredRecord, partition: int, shape: RecordShape) -> dict[str, Any]:
    """One record of topic t as JSON shows it."""
    entry: dict[str, Any] = {"topic": "t", "partition": partition, "offset": record.offset}
    entry |= {"timestamp": record.timestamp}
    if record.headers:
        entry["headers"] = [{"key": "h", "value": "AA=="}]
    for name, data, form in (
        ("key", record.key, shape.key_format),
        ("value", record.value, shape.value_format),
    ):
        try:
            entry[name] = shown_as(data, form) if name in shape.fields else None
        except ValueError as error:
            raise UndecodableRecord(record.offset, name, form) from error
    return {name: entry[name] for name in entry if name in shape.fields}


def plain(
    batches: list[bytes], first: int, end: int, shape: RecordShape, bounds: Bounds
) -> Outcome:
    shown: list[dict[str, Any]] = []
    used, position, behind_shown = 0, first, first
    for batch in batches:
        header = read_header(batch)
        is_aborted = is_transactional(header.attributes) and header.producer_id == ABORTED_PRODUCER
        if header.last_offset < first:
            continue
        for record in () if is_aborted else iterate_records(batch):
            if record.offset < first:
                continue
            if record.offset >= end:
                break
            size = len(record.key or b"") + len(record.value or b"")
            is_late = record.timestamp >= bounds.until_timestamp_ms
            if len(shown) >= bounds.max_records:
                return Outcome(shown, None, True, position, behind_shown)
            if is_late or (shown and used + size > bounds.max_bytes):
                return Outcome(shown, None, True, position, position)
            try:
                shown.append(entry_of(record, 3, shape))
            except UndecodableRecord as error:
                fault = (error.offset, error.part)
                return Outcome(shown, fault, False, record.offset, behind_shown)
            used += size
            position = behind_shown = record.offset + 1
        position = max(position, header.next_offset)  # what was left out is behind it, too
    is_full = len(shown) >= bounds.max_records
    return Outcome(shown, None, is_full, end, behind_shown if is_full else end)


def written(writer: RecordWriter, reads: list[RecordRead]) -> tuple[bytes, Outcome]:
    """The body, and what the chunks said of it; a bound ends it."""
    body, next_offset, is_end = writer.begin(), reads[0].from_offset, False
    undecodable = None
    for read in reads:
        try:
            for chunk in writer.write(read):
                assert not is_end
                assert chunk.next_offset >= next_offset
                body, next_offset, is_end = body + chunk.data, chunk.next_offset, chunk.is_end
        except UndecodableRecord as error:
            undecodable = (error.offset, error.part)
        if is_end or undecodable:
            break
    return body + writer.end(), Outcome([], undecodable, is_end, next_offset, next_offset)


def reads_of(batches: list[bytes], first: int, end: int, cuts: list[bool]) -> list[RecordRead]:
    """The batches as several reads; a cut behind a batch where there is one."""
    groups: list[list[bytes]] = [[]]
    for batch, is_cut in zip(batches, cuts, strict=True):
        groups[-1].append(batch)
        if is_cut:
            groups.append([])
    reads = []
    position = first
    for number, group in enumerate(groups):
        ends = [read_header(batch).next_offset for batch in group]
        read_end = end if number == len(groups) - 1 else min(max([position, *ends]), end)
        aborted = [(ABORTED_PRODUCER, 0, NO_BOUND)]
        reads.append(RecordRead("t", 3, b"".join(group), position, read_end, aborted))
        position = max(position, read_end)
    return reads


@given(st.data(), SHAPES, SHAPE, BOUNDS, st.integers(0, 8), st.integers(0, 24))
def test_every_form_has_the_records_of_a_loop(
    data: st.DataObject, shapes: Batches, shape: RecordShape, bounds: Bounds, first: int, until: int
) -> None:
    """M01: choice, order, members, the first that does not fit, where it ended and why."""
    batches, log_end = batches_of(shapes, columns_of)
    end = max(first, min(until, log_end)) if data.draw(st.booleans()) else max(first, log_end)
    cuts = data.draw(st.lists(st.booleans(), min_size=len(batches), max_size=len(batches)))
    chunk_bytes = data.draw(st.integers(1, 400))
    reads = reads_of(batches, first, end, cuts)
    expected = plain(batches, first, end, shape, bounds)
    for form in (ArrayRecords, LineRecords, EventRecords):
        writer = form(shape, bounds, max_decompressed_bytes=1 << 20, chunk_bytes=chunk_bytes)
        if isinstance(writer, EventRecords):
            writer.positions = {0: 5, 3: first, 7: 0}
        body, outcome = written(writer, reads)
        assert expected.least_next_offset <= outcome.next_offset <= expected.next_offset, form
        assert (outcome.undecodable, outcome.is_end) == (expected.undecodable, expected.is_end)
        assert writer.count == len(expected.records)
        if form is ArrayRecords:
            assert json.loads(body) == expected.records
        elif form is LineRecords:
            lines = body.split(b"\n")
            assert [json.loads(line) for line in lines[:-1]] == expected.records
            assert lines[-1] == b""
        else:
            events = parse_events(body)
            assert [event.data for event in events] == expected.records
            if "offset" in shape.fields:
                assert [event.id for event in events] == [
                    f"0:4,3:{record['offset']},7:-1" for record in expected.records
                ]


def plain_page(
    batches: list[bytes],
    shape: RecordShape,
    from_offset: int,
    max_bytes: int,
    end_offset: int,
    aborted_last: int,
) -> tuple[list[dict[str, Any]], int]:
    """(records shown; next offset) record by record."""
    shown: list[dict[str, Any]] = []
    used, next_offset = 0, from_offset
    for batch in batches:
        header = read_header(batch)
        is_aborted = (
            is_transactional(header.attributes)
            and header.producer_id == ABORTED_PRODUCER
            and header.base_offset <= aborted_last
        )
        assert not is_control(header.attributes)
        if header.last_offset >= from_offset and not is_aborted:
            for record in iterate_records(batch):
                if record.offset >= end_offset:
                    return shown, next_offset
                if record.offset >= from_offset:
                    size = len(record.key or b"") + len(record.value or b"")
                    if shown and size > max_bytes - used:
                        return shown, next_offset
                    shown.append(entry_of(record, 0, shape))
                    used += size
                next_offset = record.offset + 1
        next_offset = max(next_offset, header.next_offset)
    return shown, max(next_offset, end_offset)


@pytest.mark.parametrize(
    ("kind", "form"), {"binary": "base64", "json": "json", "text": "text"}.items()
)
@given(
    SHAPES,
    st.integers(0, 12),
    st.integers(0, 80) | st.just(1 << 20),
    st.integers(0, 25),
    st.integers(-1, 20),
    st.integers(1, 200),
)
def test_page_is_that_of_a_loop_over_records(
    kind: str,
    form: Any,
    shapes: Batches,
    from_offset: int,
    max_bytes: int,
    end_offset: int,
    aborted_last: int,
    buffer_bytes: int,
) -> None:
    """M01: choice, order, members and where the next fetch starts; what does not fit is named."""
    batches, _ = batches_of(shapes, columns_of)

    def page() -> JsonPage:
        return write_page(
            "t",
            0,
            b"".join(batches),
            from_offset,
            format=kind,
            max_bytes=max_bytes,
            max_decompressed_bytes=1 << 26,
            end_offset=end_offset,
            aborted=[(ABORTED_PRODUCER, 0, aborted_last)],
            buffer=PageBuffer(buffer_bytes),
        )

    shape = RecordShape(key_format=form, value_format=form)
    try:
        expected, next_offset = plain_page(
            batches, shape, from_offset, max_bytes, end_offset, aborted_last
        )
    except UndecodableRecord as fault:
        with pytest.raises(
            UndecodableRecord, match=f"the {fault.part} at offset {fault.offset} is"
        ):
            page()
        return
    found = page()
    assert json.loads(found.body) == expected
    assert (found.next_offset, found.count) == (next_offset, len(expected))


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


@pytest.mark.parametrize(
    ("text", "hint"),
    [("1", ": of partition 0 it is offset=0:1."), ("1,2", "."), ("", "."), ("9" * 20, ".")],
)
def test_an_offset_without_a_partition_is_answered_with_what_to_write(text: str, hint: str) -> None:
    found = outcome(positions_of, OFFSETS, asked({"offset": text}))
    assert isinstance(found, ApiError)
    assert found.entry.error_code == 40005
    assert found.message == f"offset is <partition>:<offset>,... with each partition once{hint}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"value":1}', "put [ and ] around an object"),
        (b' \n{"x":1}', "put [ and ] around an object"),
        (b"7", "Expected `array`, got `int`"),
        (b'[{"x":1}]', "Unrecognized field: `x`"),
        (b"[7]", "Expected `object`, got `int`"),
    ],
)
def test_an_object_instead_of_an_array_is_answered_with_what_to_write(
    body: bytes, message: str
) -> None:
    formats = Formats(EmbeddedFormat.TEXT, EmbeddedFormat.JSON)
    with pytest.raises(ApiError, match=re.escape(message)) as refused:
        parse_array(body, formats, max_records=9)
    assert refused.value.entry.error_code == 422


@given(POSITIONS)
def test_ids_are_read_back(positions: dict[int, int]) -> None:
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
    for text in ("gzip", "br, gzip;q=0.1", "*", "identity;q=0, *;q=0.5", "GZIP"):
        assert accepts_gzip(text), text
    for text in ("", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "identity"):
        assert not accepts_gzip(text), text


NOW_MS = 1_700_000_000_000
NATIVE = NativeDialect(Formats(EmbeddedFormat.TEXT, EmbeddedFormat.JSON))
V3 = V3Dialect()
GOOD_DOCUMENTS = st.sampled_from(
    [
        b"{}",
        b'{"key":null,"value":null}',
        b'{"headers":[{"key":"h","value":"AA=="}],"timestamp":5}',
        b'{"key":"k","value":{"a":[1,2.50],"a":2}}',
        b'{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":[1.0]}}',
        b'{"partition_id":3,"value":{"data":"AAE="},"headers":[{"name":"h"}]}',
    ]
)
BAD = st.sampled_from(
    [
        b"",
        b"x",
        b"{",
        b"1",
        b"[]",
        b"{}{}",
        b"{},{}",
        b'{"value":[1',
        b"2]}",
        b"2]},{",
        b'}],"x":[{',
        b'{"value":1,"value":2}',
        b'{"value":NaN}',
        b'{"value":"\xff"}',
        b'{"other":1}',
        b'{"partition":-1}',
        b'{"partition_id":-1}',
        b'{"timestamp":"noon"}',
        b'{"value":{"type":"STRING","data":5}}',
        b'{"value":{"type":"AVRO"}}',
        b'{"headers":[{"key":"h","value":"?"}]}',
    ]
)
DOCUMENTS = st.lists(GOOD_DOCUMENTS | GOOD_DOCUMENTS | BAD, min_size=1, max_size=8)


def seen(group: DecodedGroup) -> dict[int, object]:
    """What each document became: its batch and partition, or the number of its error."""
    found: dict[int, object] = {
        number: fault.entry.error_code
        for number, fault in group.faults.items()
        if isinstance(fault, ApiError)
    }
    if group.records is not None:
        partitions = group.records.partitions  # negative: the document names none
        named = [-1] * len(group.records) if partitions is None else partitions.tolist()
        for row, number in enumerate(group.numbers.tolist()):
            batch = build_plain_batch(group.records.columns, np.array([row], np.int64))
            found[number] = (bytes(batch.data), named[row])
    assert len(found) == group.document_count
    return found


def alone(document: bytes, dialect: Dialect[object]) -> tuple[object, bool]:
    """What a document is by itself, and whether it is no JSON at all."""
    try:
        return seen(decode_together([document], dialect, NOW_MS))[0], False
    except ApiError as fault:
        return fault.entry.error_code, isinstance(fault, NotJson)


@given(documents=DOCUMENTS, is_v3=st.booleans(), ends_at_broken=st.booleans())
@example(documents=[b'{"value":[1', b"2]}", b"{}"], is_v3=False, ends_at_broken=False)
@example(documents=[b'{"value":[1', b"2]},{", b'"value":3}'], is_v3=False, ends_at_broken=False)
def test_a_bad_document_takes_no_other_with_it(
    documents: list[bytes], *, is_v3: bool, ends_at_broken: bool
) -> None:
    dialect: Dialect[object] = V3 if is_v3 else NATIVE  # type: ignore[assignment] # any of them
    expected = [alone(document, dialect) for document in documents]
    broken = [number for number, (_, is_broken) in enumerate(expected) if is_broken]
    end = broken[0] + 1 if broken and ends_at_broken else len(documents)
    group = decode_each(documents, dialect, NOW_MS, ends_at_broken=ends_at_broken)
    assert seen(group) == {number: expected[number][0] for number in range(end)}
    assert group.is_broken is (ends_at_broken and bool(broken))
    try:
        together = decode_together(documents, dialect, NOW_MS)
    except ApiError:
        assert any(isinstance(found, int) for found, _ in expected)
    else:
        assert seen(together) == {number: found for number, (found, _) in enumerate(expected)}


SPLITTERS = {Lines: split_lines, Concatenated: split_concatenated}
PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b'"', b"\\", b'\\"', b"\\\\", b"a", b":", b",", b" ", b"\n", b"\r\n"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
JSON_DOCUMENTS = st.builds(
    lambda value, indent: json.dumps(value, indent=indent, ensure_ascii=False).encode(),
    st.lists(JSON_VALUES, max_size=3) | st.dictionaries(st.text(), JSON_VALUES, max_size=3),
    st.none() | st.just(1),
)
SEPARATORS = st.sampled_from([b"", b" ", b"\n", b"\r\n", b" \t"])
CUTS = st.lists(st.integers(0, 200), max_size=8)


def fed(splitter: Splitter, stream: bytes, cuts: list[int]) -> Documents:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    whole: list[bytes] = []
    for start, end in itertools.pairwise(edges):
        whole += splitter.feed(stream[start:end])
    pending_bytes, is_lost = splitter.pending_bytes, splitter.is_lost
    rest = splitter.finish()
    assert len(rest) <= 1
    assert sum(map(len, rest)) in (0, pending_bytes)
    assert splitter.pending_bytes == 0
    return Documents(whole, b"".join(rest), is_lost)


@pytest.mark.parametrize("kind", [Lines, Concatenated])
@given(stream=st.lists(PIECES, max_size=40).map(b"".join), cuts=CUTS)
@example(stream=b'{"\\', cuts=[3])
@example(stream=b'{"\\\\"}', cuts=[3, 4])
@example(stream=b"{}}{}", cuts=[])
@example(stream=b"}{{}", cuts=[])
def test_any_bytes_in_any_chunks(
    kind: type[Lines] | type[Concatenated], stream: bytes, cuts: list[int]
) -> None:
    assert fed(kind(), stream, cuts) == SPLITTERS[kind](stream)


@given(documents=st.lists(st.tuples(JSON_DOCUMENTS, SEPARATORS), max_size=6), cuts=CUTS)
def test_documents_come_out_as_they_went_in(
    documents: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    """Concatenated JSON needs no separator."""
    stream = b"".join(part for pair in documents for part in pair)
    expected = [document for document, _ in documents]
    assert fed(Concatenated(), stream, cuts) == Documents(expected, b"", is_lost=False)
