"""Goal: whatever is built reads back the same, and equals the plain twins.
Method: Hypothesis draws records, damage and pages; kernels are compared with tests/naive/records.
"""

from __future__ import annotations

import contextlib
import json

import numpy as np
from hypothesis import given, settings, strategies as st

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.format.wire.json_page import MalformedJson, check_envelope, write_page
from kafkalog.kernels.records.record_scan import RECORD_FACT_COUNT, validate_records
from tests.naive.records import PlainRecord, encode_records, page_entry, partition_of

BLOBS = st.one_of(st.none(), st.binary(max_size=70))
STAMPS = st.one_of(st.integers(0, 2**42), st.integers(-(2**61), 2**61))
HEADERS = st.lists(st.tuples(st.binary(max_size=9), BLOBS), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(PlainRecord, BLOBS, BLOBS, STAMPS, HEADERS), min_size=1, max_size=9)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def columns_of(records: list[PlainRecord]) -> RecordColumns:
    return RecordColumns.of(
        [r.key for r in records],
        [r.value for r in records],
        [r.timestamp for r in records],
        [r.headers for r in records],
    )


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 2**60))
@settings(deadline=None)
def test_batch_round_trip(records: list[PlainRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(columns_of(records), codec=codec, base_offset=base_offset)
    found = list(iterate_records(batch))
    assert [r.offset for r in found] == [base_offset + i for i in range(len(records))]
    assert [PlainRecord(r.key, r.value, r.timestamp, r.headers) for r in found] == records
    if codec is Codec.NONE:
        assert batch[HEADER_BYTES:] == encode_records(records)


@given(RECORDS, st.data())
@settings(deadline=None)
def test_damaged_records_never_escape_the_buffer(
    records: list[PlainRecord], data: st.DataObject
) -> None:
    damaged = bytearray(encode_records(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    facts = np.empty(RECORD_FACT_COUNT, np.int64)
    status = validate_records(np.frombuffer(cut, np.uint8), len(records), facts)
    assert status <= 0


@given(st.lists(BLOBS, min_size=1, max_size=20), st.integers(1, 2**31 - 1))
@settings(deadline=None)
def test_partitions_equal_the_plain_twin(keys: list[bytes | None], count: int) -> None:
    chosen = RecordColumns.of(keys, keys, 0).partitions(count).tolist()
    assert chosen == [-1 if key is None else partition_of(key, count) for key in keys]


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 12))
@settings(deadline=None)
def test_binary_page_equals_the_plain_twin(
    records: list[PlainRecord], codec: Codec, from_offset: int
) -> None:
    batch = build_batch(columns_of(records), codec=codec)
    page = write_page(
        "t",
        3,
        batch,
        from_offset,
        format="binary",
        max_bytes=1 << 20,
        max_decompressed_bytes=1 << 26,
    )
    entries = [page_entry("t", 3, i, r, "binary") for i, r in enumerate(records)]
    assert json.loads(page.body) == entries[from_offset:]
    assert page.next_offset == max(len(records), from_offset)


@given(st.lists(VALUES, min_size=1, max_size=5), st.booleans())
@settings(deadline=None)
def test_json_page_shows_what_was_stored(values: list[object], escaped: bool) -> None:
    texts = [json.dumps(value, ensure_ascii=escaped).encode() for value in values]
    batch = build_batch(RecordColumns.of(texts, texts, 5))
    page = write_page(
        "t", 0, batch, 0, format="json", max_bytes=1 << 20, max_decompressed_bytes=1 << 26
    )
    assert [entry["value"] for entry in json.loads(page.body)] == values


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
@settings(deadline=None)
def test_envelope_accepts_what_json_writes(
    value: object, escaped: bool, indent: int | None
) -> None:
    check_envelope(json.dumps(value, ensure_ascii=escaped, indent=indent).encode())


@given(VALUES, st.data())
@settings(deadline=None)
def test_envelope_accepts_nothing_that_json_refuses(value: object, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedJson):
        check_envelope(text)
        json.loads(text.decode())
