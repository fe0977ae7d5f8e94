"""Goal: the record browser shows every record once, in order, as what it is; an offset's place is
the one that a fetch uses; the wizard's preview is what deleting then does.
Method: logs of every shape on a simulated disk; pages beside plain readers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalog.broker.values import ConfigChange
from kafkalog.console.drawings import WIDTH, lay_out_axis
from kafkalog.console.rendering import render_json
from kafkalog.console.segment_states import SegmentState
from kafkalog.console.views import records as module
from kafkalog.console.views.delete_records import DeleteRecordsView, delete_records_view
from kafkalog.console.views.offsets import OffsetsView, Question, offsets_view
from kafkalog.console.views.partition import partition_view
from kafkalog.console.views.records import (
    HEADERS_SHOWN,
    SHOWN_BYTES,
    Fate,
    Place,
    RecordKind,
    RecordRow,
    RecordsView,
    Show,
    records_view,
    rows_of,
    shown,
    slices_of,
)
from kafkalog.errors import UnknownPartition, UnknownSegment
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import HEADER_BYTES, Codec
from kafkalog.format.topic_names import GROUP_OFFSETS_TOPIC
from kafkalog.log.inspect import segment_listing
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.index_repair import floor_entry
from kafkalog.log.values import AbortedTransaction, FetchDataInfo
from tests.cleaning_daemon import NOW_MS, keyed_batch
from tests.open_transactions import left_open, marker_of, replicate
from tests.sim.sim_manager import SimManager
from tests.there import there
from tests.unit.test_archived_offsets import filled as held
from tests.unit.test_compacted_logs import SEGMENTS, begun, cleaned
from tests.unit.test_console_views import STILL, page_of
from tests.unit.test_group_offsets import T0, commit, world
from tests.unit.test_overtaken_reads import once_before
from tests.unit.test_retention import MINUTE, bases, fill, put, started

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
    found = there(shown(data, show))
    assert (found.form, found.text, found.is_cut) == (form, text, is_cut)
    assert found.size_bytes == len(data)
    assert shown(None, show) is None


def test_what_a_row_is() -> None:
    pairs = [(b"name", b"\x01"), *[(b"n", None)] * HEADERS_SHOWN]
    columns = RecordColumns.of(
        [b"k", b"k", None, b""], [b"", None, None, b"v"], NOW_MS, [pairs, [], [], []]
    )
    found = rows(info_of(build_batch(columns, base_offset=7, codec=Codec.GZIP)))
    record, tombstone = RecordKind.RECORD, RecordKind.TOMBSTONE
    assert [each.kind for each in found] == [record, tombstone, record, record]
    assert there(found[0].value).size_bytes == 0
    assert (found[2].key, found[2].value) == (None, None)
    assert len(found[0].headers) == HEADERS_SHOWN
    assert found[0].header_count == HEADERS_SHOWN + 1
    assert there(found[0].headers[0].value).text == "01"
    assert [(each.offset, each.codec, each.timestamp_ms) for each in found] == [
        (offset, "gzip", NOW_MS) for offset in (7, 8, 9, 10)
    ]


def test_what_became_of_a_transaction() -> None:
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
    assert [(each.transaction, each.producer_id, each.control) for each in rows(info)] == [
        (Fate.ABORTED, 5, None),
        (Fate.ABORTED, 5, None),
        (None, 5, "ABORT"),
        (Fate.COMMITTED, 5, None),
        (None, None, None),
        (Fate.OPEN, 6, None),
    ]


def test_a_transaction_that_ends_while_the_page_is_made_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = SimManager().start().with_topic("t", 1)
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
    info = info_of(produced(0, b"a", b"b", b"c"), produced(10, b"d", b"e"))
    found = [(each.offset, each.missing_before) for each in rows(info, 1, 11)]
    assert found == [(1, 0), (2, 0), (10, 7)]
    assert rows(info, 3, 10) == []


def test_a_batch_that_cannot_be_read_is_a_row() -> None:
    broken = bytearray(produced(3, b"x", b"y"))
    broken[HEADER_BYTES] = 0xFF
    columns = RecordColumns.of([None], [bytes(LIMIT * 2)], NOW_MS)
    large = build_batch(columns, base_offset=6, codec=Codec.GZIP)
    found = rows(info_of(produced(0, b"a"), bytes(broken), produced(5, b"b"), large))
    assert [(each.offset, each.missing_before, bool(each.fault)) for each in found] == [
        (0, 0, False), (3, 2, True), (5, 0, False), (6, 0, True)
    ]  # fmt: skip
    assert {each.offset for each in found if each.kind is RecordKind.UNREADABLE} == {3, 6}


def rotten() -> SimManager:
    """Twelve batches of one record; a byte of the sixth, at offset 5, is not what was written."""
    sim = SimManager().start().with_topic("t", 1)
    for number in range(12):
        columns = RecordColumns.of([b"k"], [b"%04d" % number], NOW_MS + number)
        sim.produce("t", build_batch(columns))
    directory = sim.operations.logs.describe("t", 0).directory
    file = sim.disk.open_write(f"{directory}/{0:020d}.log")
    at = file.size() * 5 // 12 + HEADER_BYTES
    file.pwrite(bytes((file.pread(1, at)[0] ^ 1,)), at)
    return sim


def forwards(sim: SimManager, count: int) -> list[RecordRow]:
    """Page by page from offset 0 on."""
    view, found = seen(sim, Place(offset=0), count), list[RecordRow]()
    while True:
        found += view.records
        if view.later_offset is None:
            return found
        view = seen(sim, Place(offset=view.later_offset), count)


def backwards(sim: SimManager, count: int) -> list[int]:
    """Offsets, page by page from the end; every page but the first has so many records."""
    view, found = seen(sim, count=count), list[int]()
    while True:
        found = offsets_of(view) + found
        page_of(view)
        if view.earlier_before is None:
            return found
        assert len(view.records) == count
        view = seen(sim, Place(before=view.earlier_before), count)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_pages_lead_past_a_rotten_batch(count: int) -> None:
    sim = rotten()
    rows = forwards(sim, count)
    assert [each.offset for each in rows] == list(range(12))
    assert [each.offset for each in rows if each.kind is RecordKind.UNREADABLE] == [5]
    assert rows[5].fault == "A stored record batch is corrupt and is not served."
    assert backwards(sim, count) == list(range(12))


def test_a_time_behind_a_rotten_batch() -> None:
    sim = rotten()
    assert offsets_of(seen(sim, Place(timestamp_ms=NOW_MS + 4)))[0] == 4
    view = seen(sim, Place(timestamp_ms=NOW_MS + 5))
    assert offsets_of(view) == list(range(5, 12))
    assert view.note == "The record at this time is in a damaged batch: the page starts there."


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
    sim, every = holed()
    assert every[-1] == 23
    assert len(every) < 24
    assert [each.offset for each in forwards(sim, count)] == every
    assert backwards(sim, count) == every


def test_places() -> None:
    sim, every = holed()
    hole = next(offset for offset in range(24) if offset not in every)
    behind = next(offset for offset in every if offset > hole)
    assert offsets_of(seen(sim, Place(offset=hole)))[0] == behind
    assert offsets_of(seen(sim, Place(timestamp_ms=NOW_MS)))[0] == every[0]
    for beyond in (Place(timestamp_ms=NOW_MS + 1), Place(offset=1_000)):
        assert seen(sim, beyond).note
        assert offsets_of(seen(sim, beyond))[-1] == 23
    assert seen(sim, Place(offset=24)).records == []
    with pytest.raises(UnknownPartition):
        records_view(sim.operations, "t", 9, Place(), Show.AUTO, 1)


def batches(count: int, value: bytes = b"v") -> SimManager:
    """A log of batches of one record."""
    sim = SimManager().start().with_topic("t", 1)
    for _ in range(count):
        sim.produce("t", produced(0, value))
    return sim


def test_what_was_deleted_is_said() -> None:
    sim = batches(10)
    sim.delete_records("t", 4)
    view = seen(sim, Place(offset=1))
    assert offsets_of(view) == [4, 5, 6, 7, 8, 9]
    assert view.note == "The log starts at 4: earlier records are deleted."
    assert view.earlier_before is None
    assert "The log starts at 4" in page_of(view)
    assert seen(sim, Place(before=2)).records == []


def test_a_page_does_not_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 500)
    sim = batches(12, b"v" * 200)
    first = seen(sim, Place(offset=0))
    assert offsets_of(first) == [0, 1]
    assert (first.later_offset, first.note is None) == (2, False)
    last = seen(sim)
    assert offsets_of(last) == [11]
    assert (last.earlier_before, last.note is None) == (11, False)
    assert offsets_of(seen(sim, Place(before=11))) == [10]


def test_batches_without_rows_count_as_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 500)
    monkeypatch.setattr(module, "FETCH_BYTES", 1)
    monkeypatch.setattr(module, "slices_of", lambda *_: iter(()))
    sim = batches(12, b"v" * 200)
    fetch, reads = sim.operations.fetch, list[int]()

    def counted(*asked: Any, **how: Any) -> FetchDataInfo:
        reads.append(1)
        return fetch(*asked, **how)

    monkeypatch.setattr(sim.operations, "fetch", counted)
    view = seen(sim, Place(offset=0))
    assert (len(reads), view.later_offset, view.note is None) == (2, 2, False)


def test_what_is_shown_is_escaped() -> None:
    hostile = b"</pre><script>alert(1)</script>"
    sim = SimManager().start().with_topic("t", 1)
    columns = RecordColumns.of([hostile], [hostile], NOW_MS, [[(hostile, hostile)]])
    sim.produce("t", build_batch(columns))
    view = seen(sim)
    assert there(view.records[0].value).text == hostile.decode()
    assert "<script>alert" not in page_of(view)


def test_an_axis_is_to_scale() -> None:
    axis = lay_out_axis([("end", 100), ("start", 0), ("near", 1), ("beyond", 101)], 0, 100)
    assert [(tick.name, tick.x) for tick in axis.ticks] == [
        ("start", 0),
        ("near", WIDTH / 100),
        ("end", WIDTH),
    ]
    assert [tick.row for tick in axis.ticks] == [0, 1, 0]
    assert [tick.is_left for tick in axis.ticks] == [False, False, True]
    assert axis.rows == 2
    assert [tick.x for tick in lay_out_axis([("only", 5)], 5, 5).ticks] == [0]


def seen_offsets(sim: SimManager, question: Question) -> OffsetsView:
    return offsets_view(sim.operations, "t", 0, question)


def stepped() -> SimManager:
    """A log of several segments whose timestamps rise by a second a batch, two records each."""
    sim = SimManager().start().with_topic("t", 1, SEGMENTS | {"index.interval.bytes": "0"})
    for number in range(12):
        moment_ms = NOW_MS + 1_000 * number
        sim.produce("t", keyed_batch(("a", "v" * 40), ("b", "w"), timestamp_ms=moment_ms))
    return sim


def test_every_offset_has_its_place() -> None:
    sim = stepped()
    log = sim.operations.partition_log("t", 0)
    segments = log.segments.values
    assert len(segments) > 2
    for offset in range(log.log_end_offset):
        found = there(seen_offsets(sim, Question(offset=offset)).found)
        segment = there(log.segments.floor(offset))
        assert found.base_offset == segment.base_offset
        assert found.is_active is (segment is segments[-1])
        assert found.base_offset <= offset < found.next_offset
        entry = floor_entry(segment, offset)
        shown_entry = found.index_entry
        assert (shown_entry.offset, shown_entry.position) == (entry.offset, entry.position)
        assert entry.position <= there(found.position) < found.segment_bytes
        if found.time_entry is not None:
            assert found.time_entry.offset <= offset
    view = seen_offsets(sim, Question(offset=3))
    assert {each.name for each in view.points} >= {"log start", "log end", "asked", "segment"}
    assert "00000000000000000000.log" in page_of(view)


def test_a_time_leads_to_its_record() -> None:
    """As list-offsets answers."""
    sim = stepped()
    for number in range(12):
        asked = Question(timestamp_ms=NOW_MS + 1_000 * number - 1)
        found = there(seen_offsets(sim, asked).found)
        assert (found.offset, found.timestamp_ms) == (2 * number, NOW_MS + 1_000 * number)
    late = seen_offsets(sim, Question(timestamp_ms=NOW_MS + 11_001))
    assert (late.found, late.note is None) == (None, False)
    page_of(late)


def test_what_is_no_place() -> None:
    """An offset outside is told in words; one that compaction took has no byte."""
    sim = begun()
    assert cleaned(sim).error is None
    assert seen_offsets(sim, Question()).found is None
    assert seen_offsets(sim, Question(offset=1_000)).note == (
        "The log has offsets 0 to 23; 1,000 is not in it."
    )
    end_view = seen_offsets(sim, Question(offset=24))
    hole, behind = (there(seen_offsets(sim, Question(offset=each)).found) for each in (3, 15))
    assert hole.position is None  # the segment of 2 and 3 has nothing behind it
    assert behind.position is not None
    end = there(end_view.found)
    assert (end.position, end.is_active) == (None, True)
    page_of(end_view)


def test_a_segment_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that deletion overtakes takes no directory offline; a lost file does."""
    sim = stepped()
    log = sim.operations.partition_log("t", 0)
    taken = log.segments.first

    def gone(_: object, __: int) -> int:
        log.segments.remove([taken])
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(segment_listing, "position_of", gone)
    with pytest.raises(UnknownSegment):
        sim.operations.logs.locate("t", 0, 0)
    assert sim.operations.readiness().offline_dirs == 0


def seen_deletion(sim: SimManager, question: Question) -> DeleteRecordsView:
    return delete_records_view(sim.operations, "t", 0, question)


def filled() -> SimManager:
    """Segments of one record at the offsets 0 to 3, and an active one with offsets 4 and 5."""
    sim = started().with_topic("t", 1, {"retention.ms": "-1"})
    fill(sim, 4)
    put(sim)
    put(sim)
    return sim


@pytest.mark.parametrize("offset", [1, 2, 4, 5, 6])
def test_what_is_shown_is_what_happens(offset: int) -> None:
    sim = filled()
    view = seen_deletion(sim, Question(offset=offset))
    preview = there(view.preview)
    assert (view.refusal, preview.offsets_going) == (None, offset)
    before, size_bytes = bases(sim), sim.operations.logs.describe("t", 0).size_bytes
    assert f"Delete {offset} offset" in page_of(view)
    sim.delete_records("t", offset)
    sim.clock.advance_ms(5 * MINUTE)
    log = sim.operations.logs.describe("t", 0)
    gone = [each for each in before if each not in bases(sim)]
    assert [each.base_offset for each in preview.segments if each.is_whole] == gone
    assert preview.segments_going == len(gone)
    assert log.size_bytes == size_bytes - preview.bytes_freed
    assert log.log_start_offset == offset


def test_a_time() -> None:
    """A time stands for its first record, and one behind all for the high watermark."""
    sim = filled()
    start_ms = sim.operations.retention.describe("t", 0).segments[2].facts.largest_timestamp_ms
    for moment_ms, offset in ((start_ms, 2), (sim.clock.wall_ms() + 86_400_000, 6)):
        view = seen_deletion(sim, Question(timestamp_ms=moment_ms))
        assert there(view.preview).offset == offset


def test_a_time_whose_segment_goes_meanwhile_is_looked_up_again() -> None:
    sim = filled()
    listed = sim.operations.retention.describe("t", 0).segments

    def overtake() -> None:
        sim.delete_records("t", 2)
        sim.clock.advance_ms(10 * MINUTE)
        assert bases(sim)[0] == 2

    once_before(segment_reader, "find_offset_by_timestamp", overtake)
    view = seen_deletion(sim, Question(timestamp_ms=listed[1].facts.largest_timestamp_ms))
    assert there(view.preview).offset == 2


def test_what_stays_is_called_by_its_name() -> None:
    sim = filled()
    divided, whole = (seen_deletion(sim, Question(offset=offset)) for offset in (5, 6))
    assert "the segment with the offset is retained" in page_of(divided)
    html = page_of(whole)
    for said in ("the active segment is retained", "retained: it is active", "has offsets 0 to 5."):
        assert said in html
    assert "divides" not in html
    assert "offset 0 to" not in html
    sim.operations.topics.alter_configs("t", [ConfigChange("retention.bytes", "0")])
    with_limit = seen_deletion(sim, Question(offset=1))
    preview = there(with_limit.preview)
    assert (preview.segments_going, preview.others_going) == (1, 4)
    assert "The same check deletes 4 segments more" in page_of(with_limit)


def test_records_that_no_archive_has() -> None:
    sim = held()
    sim.operations.retention.raise_archived_offsets("t", {0: 3})
    for offset, unarchived in ((3, 0), (4, 1)):
        view = seen_deletion(sim, Question(offset=offset))
        assert there(view.preview).unarchived_offsets == unarchived
        assert ("not archived yet" in page_of(view)) is (unarchived > 0)


def test_what_would_be_refused() -> None:
    sim = filled()
    for offset in (0, 7):
        view = seen_deletion(sim, Question(offset=offset))
        assert (view.refusal is None, view.preview) == (False, None)
        assert 'method="post"' not in page_of(view)
    assert "6: records can be deleted only below it" in str(view.refusal)
    nothing = seen_deletion(sim, Question())
    assert (nothing.refusal, nothing.preview) == (None, None)
    page_of(nothing)
    sim.operations.topics.create("kept", 1, {"cleanup.policy": "compact"})
    kept = delete_records_view(sim.operations, "kept", 0, Question(offset=0))
    assert "has no delete" in str(kept.refusal)


def test_nothing_is_deleted_from_kafka_s_own_topics() -> None:
    sim = world()
    commit(sim, "g", {T0: 1})
    for number in range(4):
        view = delete_records_view(sim.operations, GROUP_OFFSETS_TOPIC, number, Question(offset=1))
        assert (
            view.refusal == "This is an internal topic of Kafka: clients cannot delete its records."
        )
    page = partition_view(sim.operations, GROUP_OFFSETS_TOPIC, 0, 1)
    shown = page.states[0].model_copy(update={"state": SegmentState.DELETABLE})
    assert page.model_copy(update={"states": [shown]}).deletable is None
    other = partition_view(sim.operations, "t", 0, 1)
    assert other.model_copy(update={"states": [shown]}).deletable == shown


def test_the_form_is_for_who_may() -> None:
    view = seen_deletion(filled(), Question(offset=3))
    assert json.loads(render_json(view))["confirmation"] == "t-0"
    html = page_of(view)
    assert '<input type="hidden" name="offset" value="3">' in html
    assert "Type <code><bdi>t-0</bdi></code>" in html
    assert 'method="post"' not in page_of(view, STILL._replace(is_administered=False))
