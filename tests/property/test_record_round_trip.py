"""Goal: whatever is built reads back the same, and equals the plain twins.
Method: Hypothesis draws records, damage and pages; kernels are compared with tests/naive/records.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record import Record, iterate_records
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.format.wire.json_page import MalformedJson, check_envelope
from kafkalog.kernels.records.record_scan import RECORD_FACT_COUNT, validate_records
from tests.naive.records import partition_of
from tests.naive.stored_batches import encode_records

BLOBS = st.one_of(st.none(), st.binary(max_size=70))
STAMPS = st.one_of(st.integers(0, 2**42), st.integers(-(2**61), 2**61))
HEADERS = st.lists(st.tuples(st.binary(max_size=9), BLOBS), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), STAMPS, BLOBS, BLOBS, HEADERS), min_size=1, max_size=9
).map(lambda records: [replace(each, offset=at) for at, each in enumerate(records)])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def columns_of(records: list[Record]) -> RecordColumns:
    return RecordColumns.of(
        [r.key for r in records],
        [r.value for r in records],
        [r.timestamp for r in records],
        [r.headers for r in records],
    )


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 2**60))
@settings(deadline=None)
def test_batch_round_trip(records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(columns_of(records), codec=codec, base_offset=base_offset)
    assert list(iterate_records(batch)) == [
        replace(each, offset=base_offset + each.offset) for each in records
    ]
    if codec is Codec.NONE:
        assert batch[HEADER_BYTES:] == encode_records(records, 0, records[0].timestamp)


@given(RECORDS, st.data())
@settings(deadline=None)
def test_damaged_records_never_escape_the_buffer(
    records: list[Record], data: st.DataObject
) -> None:
    damaged = bytearray(encode_records(records, 0, records[0].timestamp))
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
