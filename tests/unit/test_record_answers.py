"""Goal: pages, receipts and shared pieces say exactly what the log holds now, a read that is over
leaves its writer alone, and a reader is cut once it has taken nothing for the whole time.
Method: pages beside json.dumps, logs that change, a simulated clock.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import MalformedBatch
from kafkalog.format.topic_names import TopicPartition
from kafkalog.format.wire.json_page import (
    JsonPage,
    MalformedJson,
    check_envelope,
    write_page,
    write_receipt,
    write_receipts,
)
from kafkalog.format.wire.record_text import LineRecords
from kafkalog.format.wire.record_writer import (
    Bounds,
    Chunk,
    PageBuffer,
    RecordShape,
    UndecodableRecord,
)
from kafkalog.kernels.json.records import JsonFault
from kafkalog.kernels.json.scan import KEYS_MAX
from kafkalog.log.values import FetchDataInfo
from kafkalog.server.fetch.source import Cursor, ReadChunks
from kafkalog.server.fetch.tail_cache import TailCache, TailPiece
from kafkalog.server.protocol.connection import ReaderWatch
from tests.naive.cleaning_logs import TIME
from tests.naive.stored_batches import stored_batch
from tests.sim.sim_manager import DIRS, SimManager, batch_of as raw_batch

if TYPE_CHECKING:
    from collections.abc import Callable


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


def page_of(
    data: bytes, from_offset: int = 0, kind: str = "text", topic: str = "t", **more: Any
) -> JsonPage:
    more |= {"max_bytes": BIG, "max_decompressed_bytes": BIG}
    return write_page(topic, 2, data, from_offset, format=kind, **more)


def values_of(page: JsonPage) -> list[object]:
    return [entry["value"] for entry in json.loads(page.body)]


def test_page_as_text() -> None:
    columns = RecordColumns.of(
        [b"k", None], [b"\x00\xff", b""], [5, -1], [[(b"h", b"x"), (b"h", None)], []]
    )
    page = page_of(build_batch(columns), kind="binary", topic='a"b')
    assert page.body == (
        b'[{"topic":"a\\"b","key":"aw==","value":"AP8=","partition":2,"offset":0,"timestamp":5,'
        b'"headers":[{"key":"h","value":"eA=="},{"key":"h","value":null}]},'
        b'{"topic":"a\\"b","key":null,"value":"","partition":2,"offset":1,"timestamp":-1}]'
    )
    assert (page.next_offset, page.count) == (2, 2)


def test_empty_input_is_an_empty_array() -> None:
    assert page_of(b"", 5) == JsonPage(b"[]", 5, 0)


def test_control_and_aborted_batches_are_stepped_over() -> None:
    abort = ControlRecordType.ABORT
    marker = build_end_transaction_marker(9, 0, 0, abort, timestamp_ms=7, base_offset=2)
    data = batch_of(b"a", b"b", producer_id=9) + marker + batch_of(b"c", base_offset=3)
    page = page_of(data, aborted=[(9, 0, 2)])
    assert (values_of(page), page.next_offset) == (["c"], 4)
    assert values_of(page_of(data)) == ["a", "b", "c"]


def test_output_grows_and_is_reused() -> None:
    values = [bytes([i]) * 3000 for i in range(1, 60)]
    data, buffer = batch_of(*values), PageBuffer(16)
    for _ in range(2):
        page = page_of(data, buffer=buffer)
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


PIECE = TailPiece(b"x", 1, 3)


def test_a_piece_is_that_of_the_log_as_it_is() -> None:
    """M09 M14: not behind a deletion of records, nor of another log of that name."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 1)
    sim.produce("t", raw_batch("a", "b", "c"))
    log = sim.operations.partition_log("t", 0)
    pieces = TailCache()
    pieces.keep("key", log, log.local.generation, PIECE)
    assert pieces.find("key", log, 2) == PIECE
    assert pieces.find("other", log, 2) is None
    log.local.swap_count += 1
    assert pieces.find("key", log, 2) is None
    pieces.keep("key", log, log.local.generation, PIECE)
    log.delete_records(3)
    assert pieces.find("key", log, 2) is None
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1)
    again = sim.operations.partition_log("t", 0)
    assert pieces.find("key", again, 3) is None


def test_few_are_kept() -> None:
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 1)
    log = sim.operations.partition_log("t", 0)
    pieces = TailCache()
    for number in range(33):
        pieces.keep(number, log, log.local.generation, PIECE)
    found = [number for number in range(33) if pieces.find(number, log, 0) is not None]
    assert found == list(range(1, 33))
    pieces.keep(1, log, log.local.generation, PIECE)
    pieces.keep(99, log, log.local.generation, PIECE)
    assert pieces.find(1, log, 0) is not None
    assert pieces.find(2, log, 0) is None


def test_their_bytes_are_bounded() -> None:
    """4 MiB together; one that is larger is kept alone, because it saves the most."""
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS)).start().with_topic("t", 1)
    log = sim.operations.partition_log("t", 0)
    pieces = TailCache()

    def kept_after(*sizes: int) -> list[int]:
        for number, size in enumerate(sizes):
            piece = TailPiece(bytes(size), 1, 3)
            pieces.keep(number, log, log.local.generation, piece)
        return [n for n in range(len(sizes)) if pieces.find(n, log, 0) is not None]

    assert kept_after(1 << 20, 1 << 20, 1 << 20, 1 << 20) == [0, 1, 2, 3]
    assert kept_after(1 << 20, 1 << 20, 3 << 20) == [1, 2]
    assert kept_after(1 << 20, 8 << 20) == [1]
    assert kept_after(1, 1) == [0, 1]


API: Any = SimpleNamespace(
    metrics=SimpleNamespace(traffic=SimpleNamespace(observe_fetch=lambda *_: None))
)


def info(offset: int, value: bytes) -> FetchDataInfo:
    data = stored_batch([Record(offset, TIME, None, value)])
    return FetchDataInfo(data, offset, offset + 1, 0, 9, 9, 9)


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_read_that_is_over_takes_nothing_from_the_next_one(size: int) -> None:
    """Records of the second read went missing, and bytes of no record came in their place."""
    shape = RecordShape(value_format="text", fields=frozenset({"offset"}))
    writer = LineRecords(shape, Bounds(), max_decompressed_bytes=1 << 20)
    cursor = Cursor(TopicPartition("t", 0), 0)
    read: ReadChunks | None = ReadChunks(API, writer, cursor, info(0, b"a" * size))
    assert read is not None
    chunks: list[Chunk] = [read._step()]
    assert read.is_over
    following = ReadChunks(API, writer, cursor, info(1, b"b" * size))
    begun = following._chunks  # its writer has opened it when it is asked for the first chunk
    page = writer._page
    run = page.run

    def while_another_thread_lets_go() -> Any:
        nonlocal read
        read = None
        return run()

    page.run = while_another_thread_lets_go  # type: ignore[method-assign]
    chunks.append(following._step())
    assert begun is following._chunks
    assert b"".join(chunk.data for chunk in chunks) == b'{"offset":0}\n{"offset":1}\n'
    assert [chunk.record_count for chunk in chunks] == [1, 1]


STALL_SECONDS = 8.0


class Loop:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now + seconds, call)
        self.timers.append(timer)
        return timer

    def run_until(self, moment: float) -> None:
        while True:
            due = [each for each in self.timers if not each.is_cancelled and each.at <= moment]
            if not due:
                break
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = timer.at
            timer.call()
        self.now = moment


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Reader:
    def __init__(self) -> None:
        self.taken_bytes = 0
        self.cuts: list[float] = []
        self.loop = Loop()
        loop: Any = self.loop
        self.watch = ReaderWatch(
            loop, lambda: self.taken_bytes, STALL_SECONDS, lambda: self.cuts.append(loop.now)
        )


def test_who_takes_nothing_is_cut_once() -> None:
    reader = Reader()
    reader.watch.begin()
    reader.loop.run_until(STALL_SECONDS - 0.01)
    assert reader.cuts == []
    reader.loop.run_until(10 * STALL_SECONDS)
    assert reader.cuts == [STALL_SECONDS]


def test_a_byte_is_enough() -> None:
    reader = Reader()
    reader.watch.begin()
    for number in range(1, 115):
        reader.loop.run_until(number * STALL_SECONDS * 7 / 8)
        reader.taken_bytes += 1
    assert reader.cuts == []
    last = reader.loop.now
    reader.loop.run_until(last + 10 * STALL_SECONDS)
    (cut_at,) = reader.cuts
    assert last + STALL_SECONDS <= cut_at <= last + STALL_SECONDS * 5 / 4


def test_who_has_taken_everything_is_not_watched() -> None:
    reader = Reader()
    reader.watch.begin()
    reader.loop.run_until(STALL_SECONDS - 0.01)
    reader.watch.end()
    reader.loop.run_until(10 * STALL_SECONDS)
    reader.watch.begin()
    reader.loop.run_until(11 * STALL_SECONDS - 0.01)
    assert reader.cuts == []
    reader.loop.run_until(11 * STALL_SECONDS)
    assert reader.cuts == [11 * STALL_SECONDS]
