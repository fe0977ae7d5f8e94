"""Goal: the record browser shows every record once, in order, as what it is, and never too much.
Method: rows of batches built by hand; pages forwards and backwards over a simulated log with holes.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.console.record_rows import (
    HEADERS_SHOWN,
    SHOWN_BYTES,
    Fate,
    RecordKind,
    RecordRow,
    Show,
    rows_of,
    shown,
    slices_of,
)
from kafkalog.console.views import records as module
from kafkalog.console.views.records import Place, RecordsView, records_view
from kafkalog.errors import UnknownPartition
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.log.values import AbortedTransaction, FetchDataInfo
from tests.cleaning_daemon import NOW_MS
from tests.open_transactions import left_open, marker_of, replicate
from tests.sim.sim_manager import SimManager
from tests.unit.test_cleaned_log_restarts import begun, cleaned
from tests.unit.test_console_views import page_of

END = 1 << 40
LIMIT = 1 << 20


def info_of(
    *batches: bytes, stable: int = END, aborted: tuple[AbortedTransaction, ...] = ()
) -> FetchDataInfo:
    return FetchDataInfo(b"".join(batches), 0, END, 0, END, END, stable, aborted)


def rows(info: FetchDataInfo, first: int = 0, until: int = END) -> list[RecordRow]:
    return rows_of(list(slices_of(info, first, until, LIMIT)), Show.AUTO)


def produced(base_offset: int, *values: bytes | None, producer_id: int = -1) -> bytes:
    """One batch; with a producer part of a transaction."""
    return build_batch(
        RecordColumns.of([b"k"] * len(values), list(values), NOW_MS),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )


@pytest.mark.parametrize(
    ("data", "show", "form", "text", "is_cut"),
    [
        (b"plain\ttext\n", Show.AUTO, "text", "plain\ttext\n", False),
        ("grün".encode(), Show.AUTO, "text", "grün", False),
        (b"\xff\x00", Show.AUTO, "hex", "ff 00", False),
        (b"a\x00b", Show.AUTO, "hex", "61 00 62", False),
        ("\u202eevil".encode(), Show.AUTO, "hex", "e2 80 ae 65 76 69 6c", False),
        ("\u0645\u06cc\u200c\u062e".encode(), Show.AUTO, "text", "\u0645\u06cc\u200c\u062e", False),
        ("exe\u2066.jpg".encode(), Show.TEXT, "text", "exe\ufffd.jpg", False),
        (b"a\x00\xff", Show.TEXT, "text", "a\ufffd\ufffd", False),
        (b"plain", Show.HEX, "hex", "70 6c 61 69 6e", False),
        (b"", Show.AUTO, "text", "", False),
        (b"x" * (SHOWN_BYTES + 1), Show.AUTO, "text", "x" * SHOWN_BYTES, True),
        # the cut divides a character
        (b"x" + "ü".encode() * SHOWN_BYTES, Show.AUTO, "text", "x" + "ü" * 511, True),
        (bytes([255]) * 300, Show.AUTO, "hex", " ".join(["ff"] * 256), True),
    ],
)
def test_bytes_for_people(data: bytes, show: Show, form: str, text: str, is_cut: bool) -> None:
    """Text where it is text, hex elsewhere, bounded, and its true size beside it."""
    found = shown(data, show)
    assert found is not None
    assert (found.form, found.text, found.is_cut) == (form, text, is_cut)
    assert found.size_bytes == len(data)
    assert shown(None, show) is None


def test_what_a_row_is() -> None:
    """Goal: null is not empty, a tombstone is not a null value, headers are bounded.
    Method: one batch with each of them.
    """
    pairs = [(b"name", b"\x01"), *[(b"n", None)] * HEADERS_SHOWN]
    columns = RecordColumns.of(
        [b"k", b"k", None, b""], [b"", None, None, b"v"], NOW_MS, [pairs, [], [], []]
    )
    found = rows(info_of(build_batch(columns, base_offset=7, codec=Codec.GZIP)))
    assert [each.kind for each in found] == [
        RecordKind.RECORD,
        RecordKind.TOMBSTONE,
        RecordKind.RECORD,
        RecordKind.RECORD,
    ]
    assert found[0].value is not None
    assert found[0].value.size_bytes == 0
    assert (found[2].key, found[2].value) == (None, None)
    assert len(found[0].headers) == HEADERS_SHOWN
    assert found[0].header_count == HEADERS_SHOWN + 1
    assert found[0].headers[0].value is not None
    assert found[0].headers[0].value.text == "01"
    assert [(each.offset, each.codec, each.timestamp_ms) for each in found] == [
        (offset, "gzip", NOW_MS) for offset in (7, 8, 9, 10)
    ]


def test_what_became_of_a_transaction() -> None:
    """Goal: aborted, committed and open records and the markers are told apart.
    Method: two producers, one aborted once and then committed, one open.
    """
    marker = build_end_transaction_marker(
        5, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS, base_offset=2
    )
    info = info_of(
        produced(0, b"a", b"b", producer_id=5),
        marker,
        produced(3, b"c", producer_id=5),
        produced(4, b"plain"),
        produced(5, b"d", producer_id=6),
        stable=5,
        aborted=(AbortedTransaction(5, 0, 2, 3),),
    )
    found = rows(info)
    assert [each.transaction for each in found] == [
        Fate.ABORTED,
        Fate.ABORTED,
        None,
        Fate.COMMITTED,
        None,
        Fate.OPEN,
    ]
    assert [each.kind for each in found].index(RecordKind.CONTROL) == 2
    assert found[2].control == "ABORT"
    assert [each.producer_id for each in found] == [5, 5, 5, 5, None, 6]


def test_a_transaction_that_ends_while_the_page_is_made_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An aborted record is never called committed, whenever its abort comes."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    replicate(sim, left_open(5, "a"))
    fetch = sim.operations.fetch

    def abort_then_fetch(*asked: Any, **how: Any) -> FetchDataInfo:
        replicate(sim, marker_of(5, ControlRecordType.ABORT, epoch=0, coordinator=0))
        return fetch(*asked, **how)

    monkeypatch.setattr(sim.operations, "fetch", abort_then_fetch)
    assert [each.transaction for each in seen(sim).records] == [Fate.OPEN]
    monkeypatch.undo()
    assert [each.transaction for each in seen(sim).records][:2] == [Fate.ABORTED, None]


def test_bounds_and_holes() -> None:
    """Rows of exactly the offsets that were asked for, and the holes between them."""
    info = info_of(produced(0, b"a", b"b", b"c"), produced(10, b"d", b"e"))
    assert [each.offset for each in rows(info, 1, 11)] == [1, 2, 10]
    assert [each.missing_before for each in rows(info, 1, 11)] == [0, 0, 7]
    assert rows(info, 3, 10) == []


def test_a_batch_that_cannot_be_read_is_a_row() -> None:
    """One bad batch hides neither its neighbours nor itself."""
    broken = bytearray(produced(3, b"x", b"y"))
    broken[HEADER_BYTES] = 0xFF
    columns = RecordColumns.of([None], [bytes(LIMIT * 2)], NOW_MS)
    large = build_batch(columns, base_offset=6, codec=Codec.GZIP)
    found = rows(info_of(produced(0, b"a"), bytes(broken), produced(5, b"b"), large))
    assert [each.offset for each in found] == [0, 3, 5, 6]
    assert [each.kind is RecordKind.UNREADABLE for each in found] == [False, True, False, True]
    assert found[1].fault
    assert found[3].fault
    assert [each.missing_before for each in found] == [0, 2, 0, 0]


def rotten() -> SimManager:
    """Twelve batches of one record; a byte of the sixth, at offset 5, is not what was written."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for number in range(12):
        columns = RecordColumns.of([b"k"], [b"%04d" % number], NOW_MS + number)
        sim.produce("t", build_batch(columns))
    directory = sim.operations.describe_log("t", 0).directory
    file = sim.disk.open_write(f"{directory}/{0:020d}.log")
    at = file.size() * 5 // 12 + HEADER_BYTES
    file.pwrite(bytes((file.pread(1, at)[0] ^ 1,)), at)
    return sim


@pytest.mark.parametrize("count", [1, 3, 50])
def test_pages_lead_past_a_rotten_batch(count: int) -> None:
    """Who looks at damage sees it as one row, and every record before and behind it."""
    sim = rotten()
    every = list(range(12))
    view, forwards = seen(sim, Place(offset=0), count), list[RecordRow]()
    while True:
        forwards += view.records
        if view.later_offset is None:
            break
        view = seen(sim, Place(offset=view.later_offset), count)
    assert [each.offset for each in forwards] == every
    assert [each.offset for each in forwards if each.kind is RecordKind.UNREADABLE] == [5]
    assert forwards[5].fault == "A stored record batch is corrupt and is not served."
    view, backwards = seen(sim, count=count), list[int]()
    while True:
        backwards = offsets_of(view) + backwards
        page_of(view)
        if view.earlier_before is None:
            break
        view = seen(sim, Place(before=view.earlier_before), count)
    assert backwards == every


def test_a_time_behind_a_rotten_batch() -> None:
    """A time that cannot be looked up for damage leads to the damage, and it is said."""
    sim = rotten()
    assert offsets_of(seen(sim, Place(timestamp_ms=NOW_MS + 4)))[0] == 4
    view = seen(sim, Place(timestamp_ms=NOW_MS + 5))
    assert offsets_of(view) == list(range(5, 12))
    assert view.note == "The time leads to a damaged batch: the page begins there."


def seen(sim: SimManager, place: Place = Place(), count: int = 50) -> RecordsView:  # noqa: B008
    return records_view(sim.operations, "t", 0, place, Show.AUTO, count)


def offsets_of(view: RecordsView) -> list[int]:
    return [each.offset for each in view.records]


def holed() -> tuple[SimManager, list[int]]:
    """A compacted log, most of whose first records are gone; the offsets that are left."""
    sim = begun()
    assert cleaned(sim).error is None
    return sim, offsets_of(seen(sim, Place(offset=0), 200))


@pytest.mark.parametrize("count", [1, 3, 50])
def test_pages_meet(count: int) -> None:
    """Forwards and backwards every record stands on one page, whatever holes there are."""
    sim, every = holed()
    assert every[-1] == 23
    assert len(every) < 24
    view, forwards = seen(sim, Place(offset=0), count), list[int]()
    while True:
        forwards += offsets_of(view)
        if view.later_offset is None:
            break
        view = seen(sim, Place(offset=view.later_offset), count)
    assert forwards == every
    view, backwards = seen(sim, count=count), list[int]()
    while True:
        backwards = offsets_of(view) + backwards
        if view.earlier_before is None:
            break
        assert len(view.records) == count
        view = seen(sim, Place(before=view.earlier_before), count)
    assert backwards == every
    page_of(view)


def test_places() -> None:
    """A time, an offset in a hole, and what lies outside lead somewhere, and it is said."""
    sim, every = holed()
    hole = next(offset for offset in range(24) if offset not in every)
    behind = next(offset for offset in every if offset > hole)
    assert offsets_of(seen(sim, Place(offset=hole)))[0] == behind
    assert offsets_of(seen(sim, Place(timestamp_ms=NOW_MS)))[0] == every[0]
    never = seen(sim, Place(timestamp_ms=NOW_MS + 1))
    assert never.note is not None
    assert offsets_of(never)[-1] == 23
    beyond = seen(sim, Place(offset=1_000))
    assert beyond.note is not None
    assert offsets_of(beyond)[-1] == 23
    assert seen(sim, Place(offset=24)).records == []
    with pytest.raises(UnknownPartition):
        records_view(sim.operations, "t", 9, Place(), Show.AUTO, 1)


def test_what_was_deleted_is_said() -> None:
    """An old link leads to the first record that is left."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for number in range(10):
        sim.produce("t", produced(0, b"%d" % number))
    sim.delete_records("t", 4)
    view = seen(sim, Place(offset=1))
    assert offsets_of(view) == [4, 5, 6, 7, 8, 9]
    assert view.note == "The log begins at 4: what lay before is gone."
    assert view.earlier_before is None
    assert "The log begins at 4" in page_of(view)
    assert seen(sim, Place(before=2)).records == []


def test_a_page_does_not_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records end a page early, both ways, and the next page goes on from there."""
    monkeypatch.setattr(module, "READ_BYTES", 500)
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for _ in range(12):
        sim.produce("t", produced(0, b"v" * 200))
    first = seen(sim, Place(offset=0))
    assert offsets_of(first) == [0, 1]
    assert (first.later_offset, first.note is None) == (2, False)
    last = seen(sim)
    assert offsets_of(last) == [11]
    assert last.earlier_before == 11
    assert last.note is not None
    assert offsets_of(seen(sim, Place(before=11))) == [10]


def test_batches_without_rows_count_as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page over very many batches that compaction has emptied ends early as well."""
    monkeypatch.setattr(module, "READ_BYTES", 500)
    monkeypatch.setattr(module, "FETCH_BYTES", 1)
    monkeypatch.setattr(module, "slices_of", lambda *_: iter(()))
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for _ in range(12):
        sim.produce("t", produced(0, b"v" * 200))
    fetch, reads = sim.operations.fetch, list[int]()

    def counted(*asked: Any, **how: Any) -> FetchDataInfo:
        reads.append(1)
        return fetch(*asked, **how)

    monkeypatch.setattr(sim.operations, "fetch", counted)
    view = seen(sim, Place(offset=0))
    assert (len(reads), view.later_offset) == (2, 2)
    assert view.note is not None


def test_what_is_shown_is_escaped() -> None:
    """A record is text on the page, never markup."""
    hostile = b"</pre><script>alert(1)</script>"
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    columns = RecordColumns.of([hostile], [hostile], NOW_MS, [[(hostile, hostile)]])
    sim.produce("t", build_batch(columns))
    view = seen(sim)
    assert view.records[0].value is not None
    assert view.records[0].value.text == hostile.decode()
    assert "<script>alert" not in page_of(view)
