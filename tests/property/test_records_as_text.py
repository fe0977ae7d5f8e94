"""Goal: each form of an answer has the records that a loop over them has, whatever bounds it.
Method: random batches, compressed, stamped, aborted and with gaps, cut into reads at random places,
chunks of a few bytes, keys that do not fit their formats; a loop over records is the twin.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.records.batch_builder import RecordColumns
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import Codec, is_transactional, read_header
from kafkalog.format.wire.record_text import ArrayRecords, EventRecords, LineRecords
from kafkalog.format.wire.record_writer import (
    FIELDS,
    FORMATS,
    Bounds,
    RecordRead,
    RecordShape,
    UndecodableRecord,
)
from tests.integration.stream_world import parse_events
from tests.property.shaped_batches import ABORTED_PRODUCER, BatchShape, batch_shapes, batches_of

if TYPE_CHECKING:
    from kafkalog.format.wire.record_writer import RecordWriter

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
    text = data.decode()
    return text if form == "text" else json.loads(text)


def plain(
    batches: list[bytes], first: int, end: int, shape: RecordShape, bounds: Bounds
) -> Outcome:
    """Record by record."""
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
            entry: dict[str, Any] = {}
            for name in FIELDS:
                if name in ("key", "value") and name in shape.fields:
                    data = record.key if name == "key" else record.value
                    form = shape.key_format if name == "key" else shape.value_format
                    try:
                        entry[name] = shown_as(None if data is None else bytes(data), form)
                    except ValueError:
                        fault = (record.offset, name)
                        return Outcome(shown, fault, False, record.offset, behind_shown)
            entry |= {"topic": "t", "partition": 3, "offset": record.offset}
            entry |= {"timestamp": record.timestamp}
            if record.headers:
                entry["headers"] = [{"key": "h", "value": "AA=="}]
            shown.append({name: entry[name] for name in entry if name in shape.fields})
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
    data: st.DataObject,
    shapes: Batches,
    shape: RecordShape,
    bounds: Bounds,
    first: int,
    until: int,
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
