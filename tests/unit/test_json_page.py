"""Goal: fetch pages, receipts and the body scan say exactly what http-api.md 3.3 says.
Method: whole answers as text for small cases; tables of refused bodies; growth and limits by size.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import MalformedBatch, with_log_append_time
from kafkalog.format.wire.json_page import (
    JsonPage,
    MalformedJson,
    check_envelope,
    write_page,
    write_receipt,
    write_receipts,
)
from kafkalog.format.wire.record_writer import PageBuffer, UndecodableRecord
from kafkalog.kernels.json.records import JsonFault
from kafkalog.kernels.json.scan import KEYS_MAX

BIG = 1 << 20


def batch_of(*values: bytes | None, base_offset: int = 0, producer_id: int = -1) -> bytes:
    columns = RecordColumns.of([None] * len(values), list(values), 7)
    return build_batch(
        columns,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        is_transactional=producer_id >= 0,
    )


def page_of(data: bytes, from_offset: int = 0, kind: str = "text", size: int = BIG) -> JsonPage:
    return write_page("t", 0, data, from_offset, format=kind, max_bytes=size)


def values_of(page: JsonPage) -> list[object]:
    return [entry["value"] for entry in json.loads(page.body)]


def test_page_as_text() -> None:
    """The members in their order, headers only where there are some."""
    columns = RecordColumns.of(
        [b"k", None], [b"\x00\xff", b""], [5, -1], [[(b"h", b"x"), (b"h", None)], []]
    )
    page = write_page('a"b', 2, build_batch(columns), 0, format="binary", max_bytes=BIG)
    assert page.body == (
        b'[{"topic":"a\\"b","key":"aw==","value":"AP8=","partition":2,"offset":0,"timestamp":5,'
        b'"headers":[{"key":"h","value":"eA=="},{"key":"h","value":null}]},'
        b'{"topic":"a\\"b","key":null,"value":"","partition":2,"offset":1,"timestamp":-1}]'
    )
    assert (page.next_offset, page.count) == (2, 2)


def test_empty_input_is_an_empty_array() -> None:
    assert page_of(b"", 5) == JsonPage(b"[]", 5, 0)


def test_records_below_the_offset_are_left_out() -> None:
    page = page_of(batch_of(b"a", b"b", b"c", base_offset=10), 11)
    assert values_of(page) == ["b", "c"]
    assert page.next_offset == 13


def test_max_bytes_counts_keys_and_values_and_admits_one() -> None:
    data = batch_of(b"aaaa", b"bb", b"c")
    first = page_of(data, size=1)
    assert (values_of(first), first.next_offset) == (["aaaa"], 1)
    assert values_of(page_of(data, size=6)) == ["aaaa", "bb"]
    assert values_of(page_of(data, size=7)) == ["aaaa", "bb", "c"]


def test_end_offset_bounds_the_page() -> None:
    page = write_page("t", 0, batch_of(b"a", b"b"), 0, format="text", max_bytes=BIG, end_offset=1)
    assert (values_of(page), page.next_offset) == (["a"], 1)


def test_control_and_aborted_batches_are_stepped_over() -> None:
    """Read_committed sees neither markers nor what was rolled back."""
    abort = ControlRecordType.ABORT
    marker = build_end_transaction_marker(9, 0, 0, abort, timestamp_ms=7, base_offset=2)
    data = batch_of(b"a", b"b", producer_id=9) + marker + batch_of(b"c", base_offset=3)
    page = write_page("t", 0, data, 0, format="text", max_bytes=BIG, aborted=[(9, 0, 2)])
    assert (values_of(page), page.next_offset) == (["c"], 4)
    assert values_of(page_of(data)) == ["a", "b", "c"]


def test_log_append_time_is_shown() -> None:
    page = page_of(with_log_append_time(batch_of(b"a"), 99))
    assert json.loads(page.body)[0]["timestamp"] == 99


def test_output_grows_and_is_reused() -> None:
    values = [bytes([i]) * 3000 for i in range(1, 60)]
    data, buffer = batch_of(*values), PageBuffer(16)
    for _ in range(2):
        page = write_page("t", 0, data, 0, format="text", max_bytes=BIG, buffer=buffer)
        assert values_of(page) == [value.decode() for value in values]


def test_a_partial_batch_at_the_end_is_ignored() -> None:
    whole = batch_of(b"a")
    assert values_of(page_of(whole + whole[:-1])) == ["a"]


def test_a_damaged_record_is_an_error_not_a_page() -> None:
    whole = batch_of(b"abc")
    damaged = bytearray(whole)
    damaged[61] = 0x7E
    with pytest.raises(MalformedBatch) as caught:
        page_of(whole + damaged)
    assert caught.value.position == len(whole)


@pytest.mark.parametrize(
    "value", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2"]
)
def test_text_must_be_utf8(value: bytes) -> None:
    with pytest.raises(UndecodableRecord) as caught:
        page_of(batch_of(b"fine", value, base_offset=4))
    assert (caught.value.offset, caught.value.part) == (5, "value")


@pytest.mark.parametrize(
    "value", [b"", b"1 2", b"{", b'1,"x":2', b"nul", b"\xff", b"[" * 65 + b"]" * 65]
)
def test_json_must_be_one_value(value: bytes) -> None:
    columns = RecordColumns.of([b"1", value], [b'{"a":1,"a":2}', None], 0)
    with pytest.raises(UndecodableRecord) as caught:
        page_of(build_batch(columns), kind="json")
    assert (caught.value.offset, caught.value.part) == (1, "key")


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    name = b"a\xf0\x9f\x98b\xff\xe2\x82"
    batch = build_batch(RecordColumns.of([None], [b""], 0, [[(name, None)]]))
    (entry,) = json.loads(page_of(batch).body)
    assert entry["headers"] == [{"key": name.decode("utf-8", "replace"), "value": None}]


def test_receipts() -> None:
    offsets = np.array([7, 2**63 - 1], np.int64)
    assert write_receipts(np.array([0, 12], np.int32), offsets) == (
        b'"offsets":[{"partition":0,"offset":7,"error_code":null,"error":null},'
        b'{"partition":12,"offset":9223372036854775807,"error_code":null,"error":null}]'
    )
    assert write_receipts(np.empty(0, np.int32), np.empty(0, np.int64)) == b'"offsets":[]'
    for partition, offset in ((0, 0), (2**31 - 1, 2**63 - 1)):
        one = write_receipts(np.array([partition]), np.array([offset]))
        assert write_receipt(partition, offset) == one


REFUSED = [
    (b"", JsonFault.SYNTAX, 0),
    (b"{", JsonFault.SYNTAX, 1),
    (b"[1,]", JsonFault.SYNTAX, 3),
    (b"[1}", JsonFault.SYNTAX, 2),
    (b"NaN", JsonFault.SYNTAX, 0),
    (b"[-Infinity]", JsonFault.SYNTAX, 1),
    (b"01", JsonFault.SYNTAX, 0),
    (b"1 2", JsonFault.SYNTAX, 2),
    (b"\xef\xbb\xbf{}", JsonFault.BYTE_ORDER_MARK, 0),
    (b'"\xff"', JsonFault.BAD_UTF8, 1),
    (b'"\x01"', JsonFault.CONTROL_CHARACTER, 1),
    (b"[" * 65 + b"]" * 65, JsonFault.TOO_DEEP, 64),
    (b"1" * 41, JsonFault.LONG_NUMBER, 0),
    (b'"\\ud800"', JsonFault.LONE_SURROGATE, 1),
    (b'"\\udc00\\ud800"', JsonFault.LONE_SURROGATE, 1),
    (b'{"a":1,"a":2}', JsonFault.DUPLICATE_KEY, 7),
    (b'{"a":1,"\\u0061":2}', JsonFault.DUPLICATE_KEY, 7),
    (b'{"\xf0\x9f\x98\x80":1,"\\ud83d\\ude00":2}', JsonFault.DUPLICATE_KEY, 10),
    (b'{"records":[{"key":1},{"key":2,"key":3}]}', JsonFault.DUPLICATE_KEY, 31),
    (b'{"records":[{"key":{"a":1},"x":{"a":1,"a":2}}]}', JsonFault.DUPLICATE_KEY, 38),
]


@pytest.mark.parametrize(("body", "fault", "position"), REFUSED)
def test_refused_bodies(body: bytes, fault: JsonFault, position: int) -> None:
    with pytest.raises(MalformedJson) as caught:
        check_envelope(body)
    assert (caught.value.fault, caught.value.position) == (fault, position)


@pytest.mark.parametrize(
    "body",
    [
        b' {"a":{"b":1},"b":{"b":2}} ',
        b'{"records":[{"value":{"a":1,"a":[{"b":1,"b":2}]}},{"key":{},"value":2}]}',
        b"[" * 64 + b"]" * 64,
        b"-0.5e+10",
        b'"\\ud83d\\ude00\\n"',
    ],
)
def test_accepted_bodies(body: bytes) -> None:
    check_envelope(body)


def test_keys_of_an_object_are_bounded() -> None:
    members = ",".join(f'"{i}":0' for i in range(KEYS_MAX + 1))
    with pytest.raises(MalformedJson) as caught:
        check_envelope(f"{{{members}}}".encode())
    assert caught.value.fault is JsonFault.TOO_MANY_KEYS
