"""Goal: a reader that deletion or a clean overtakes gets whole batches, and misses nothing without
being told.
Method: changes between any two steps of a read.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.broker.groups.consumers import ConsumerConfig, Reset
from kafkalog.errors import OffsetBelowLogStart, PartitionMoving
from kafkalog.format.records.control_record import ControlRecordType
from kafkalog.format.topic_names import TopicPartition
from kafkalog.format.wire.record_text import LineRecords
from kafkalog.format.wire.record_writer import Bounds, RecordShape
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.local_log import LogSegments
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.log_segment import LogSegment
from kafkalog.log.segment.segment_file import scan_chunks
from kafkalog.log.segment.segment_reader import position_of
from kafkalog.log.segment.segment_swap import CleanedSegment, SegmentSwap
from kafkalog.log.values import AppendOrigin, Isolation, WouldBlock
from kafkalog.server.fetch import v2 as routes
from kafkalog.server.fetch.source import Cursor, ReadChunks, RecordSource, collect
from kafkalog.server.fetch.stream import PAGES
from kafkalog.server.protocol.media_types import JSON, EmbeddedFormat
from tests.made_api import api_over
from tests.open_transactions import left_open, marker_of
from tests.partition_world import NOW_MS, PartitionWorld, batch, records_of
from tests.unit.test_consumer_groups import SETTINGS, PollWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.values import FetchDataInfo


CONFIG = LogConfig(internal_segment_bytes=400, retention_bytes=0, file_delete_delay_ms=0)
API: Any = SimpleNamespace(
    metrics=SimpleNamespace(traffic=SimpleNamespace(observe_fetch=lambda *_: None))
)


def written(count: int = 12) -> PartitionWorld:
    world = PartitionWorld(CONFIG)
    for number in range(count):
        world.append(batch([b"%06d" % number + b"v" * 60]))
    assert len(world.log.segments) > 3
    world.flush()
    return world


def delete_up_to(world: PartitionWorld, offset: int) -> None:
    """DeleteRecords and the pass that takes what lies below, files and all."""
    world.log.delete_records(offset)
    assert execute.finish(world.log)
    world.clock.advance_ms(1)
    assert not [name for name in world.names() if name.endswith(".deleted")]


def once_before(target: Any, name: str, act: Callable[[], object]) -> None:
    """Run ``act`` in front of the next call of this method, of an object or of all of a class."""
    method = getattr(target, name)

    def acting(*arguments: Any, **more: Any) -> Any:
        setattr(target, name, method)
        act()
        return method(*arguments, **more)

    setattr(target, name, acting)


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.LAST_STABLE])
@pytest.mark.parametrize("deleted", [7, 12])
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_deleted_before_the_segment_was_looked_for(
    offset: int, deleted: int, isolation: Isolation
) -> None:
    """M09: neither the records that follow, nor that there are none."""
    world = written()
    if deleted == 12:
        world.log.roll()
    once_before(world.log.local, "read", lambda: delete_up_to(world, deleted))
    with pytest.raises(OffsetBelowLogStart) as raised:
        world.log.read(offset, 1 << 20, isolation)
    assert raised.value.details["log_start_offset"] == deleted


def test_deleted_before_the_segment_was_looked_for_and_not_what_is_asked_for() -> None:
    world = written()
    expected = bytes(world.log.read(8, 1, Isolation.HIGH_WATERMARK).data)
    once_before(world.log.local, "read", lambda: delete_up_to(world, 7))
    assert bytes(world.log.read(8, 1, Isolation.HIGH_WATERMARK).data) == expected


def aborted_world() -> PartitionWorld:
    """An aborted transaction of one record and its marker in each of several segments."""
    world = PartitionWorld(CONFIG)
    for sequence in range(4):
        world.append(left_open(7, "x" * 100, sequence=sequence))
        marker = marker_of(7, ControlRecordType.ABORT, epoch=0, coordinator=0)
        world.append(marker, origin=AppendOrigin.COORDINATOR)
    assert len(world.log.segments) == 4
    world.flush()
    return world


def test_deleted_before_aborted_transactions_were_looked_for() -> None:
    """M09: their records are never answered without saying that they were aborted."""
    world = aborted_world()
    (known,) = world.log.read(2, 1, Isolation.LAST_STABLE).aborted
    assert (known.first_offset, known.last_offset) == (2, 3)
    once_before(world.log.local, "collect_aborted", lambda: delete_up_to(world, 6))
    with pytest.raises(OffsetBelowLogStart):
        world.log.read(2, 1, Isolation.LAST_STABLE)


def swap_of_first(world: PartitionWorld, *at: int) -> SegmentSwap:
    """A clean that drops nothing of the first segment, and begins another one at each of ``at``."""
    log = world.log
    old = log.segments.first
    bounds = [0, *(position_of(old, offset) or 0 for offset in at), old.size_bytes]
    made = []
    for base, (start, end) in zip((old.base_offset, *at), pairwise(bounds), strict=True):
        segment = CleanedSegment(log.environment, log.local.directory, base, log.config)
        for chunk in scan_chunks(old.log_file, start, end, check_crc=False):
            segment.append(chunk.data[: chunk.rows.consumed_bytes], chunk.rows)
        made.append(segment.finish(old.last_modified_ms))
    swap = SegmentSwap(log.environment, log.local, made, (old,), renames_max=64)
    swap.prepare()
    return swap


def replacing(world: PartitionWorld) -> Callable[[], None]:
    """A clean that is faster, and takes the old files away too."""
    swap = swap_of_first(world)

    def replace() -> None:
        swap.publish()
        swap.complete(lambda call: call())
        world.clock.advance_ms(1)

    return replace


def test_files_that_a_clean_replaced_are_looked_for_again() -> None:
    """M09 M20: the read finds the new ones, at once, whatever ``file.delete.delay.ms`` is."""
    world = written()
    world.reopen(clean=True)
    log, old = world.log, world.log.segments.first
    once_before(segment_reader, "read", replacing(world))
    answer = log.read(0, 1, Isolation.HIGH_WATERMARK)
    assert [record.offset for record in records_of(answer.data)] == [0]
    assert log.segments.first is not old


@pytest.mark.parametrize("asked_ms", [NOW_MS + 50_000, -3])
def test_a_look_up_by_time_finds_what_a_clean_replaced(asked_ms: int) -> None:
    """It took an index that is gone for an empty one: the wrong record, or that there is none."""
    world = PartitionWorld(CONFIG)
    for number in range(12):
        late_ms = 100_000 if number == 0 else number
        world.append(batch([b"v" * 60], timestamps=NOW_MS + late_ms))
    world.flush()
    world.reopen(clean=True)
    log, old = world.log, world.log.segments.first
    once_before(LogSegment, "max_timestamp_so_far", replacing(world))
    found = log.offset_for_timestamp(asked_ms, Isolation.HIGH_WATERMARK)
    assert found is not None
    assert found.offset == 0
    assert log.segments.first is not old


def test_a_segment_that_becomes_two_while_it_is_looked_for() -> None:
    """The bounds of the old one are not those of the new: its batches are not corrupt for it."""
    world = written()
    swap = swap_of_first(world, 1)
    once_before(LogSegments, "higher", swap.publish)
    answer = world.log.read(1, 1, Isolation.HIGH_WATERMARK)
    assert [record.offset for record in records_of(answer.data)] == [1]
    assert world.log.segments.values[1].base_offset == 1


def test_a_roll_takes_nothing() -> None:
    """A reader of committed records is not held up by whoever fills segments beside it."""
    world = aborted_world()
    looks = 0

    def roll() -> None:
        nonlocal looks
        looks += 1
        world.log.roll()
        once_before(world.log.local, "collect_aborted", roll)

    once_before(world.log.local, "collect_aborted", roll)
    assert len(world.log.read(0, 1, Isolation.LAST_STABLE).aborted) == 1
    assert looks == 1


def test_a_move_refuses_nobody_who_can_read_on() -> None:
    """Appends are refused for a moment; a reader whom retention overtakes is told of that."""
    world = written()

    def delete() -> None:
        world.log.refusal = lambda: PartitionMoving("it moves")
        delete_up_to(world, 7)
        raise FileNotFoundError(2, "No such file or directory")

    once_before(world.log.local, "read", delete)
    with pytest.raises(OffsetBelowLogStart):
        world.log.read(1, 1, Isolation.HIGH_WATERMARK)


def test_a_file_that_somebody_took_away_is_an_error() -> None:
    """Nothing was replaced: looking again would find the same."""
    world = written()

    def lose() -> None:
        raise FileNotFoundError(2, "No such file or directory")

    once_before(world.log.local, "read", lose)
    with pytest.raises(FileNotFoundError):
        world.log.read(0, 1, Isolation.HIGH_WATERMARK)


def overtaken() -> tuple[PartitionWorld, FetchDataInfo]:
    """What was read from offset 1 on, and says that the log starts at 7 by now."""
    world = written()
    info = world.log.read(1, 1, Isolation.HIGH_WATERMARK)
    assert [record.offset for record in records_of(info.data)] == [1]
    return world, info._replace(log_start_offset=7)


def test_a_stream_and_a_page_give_what_was_read() -> None:
    """M09: the next read says that records are missing; going on at the log start would not."""
    _, info = overtaken()
    shape = RecordShape(value_format="text", fields=frozenset({"offset"}))
    writer = LineRecords(shape, Bounds(), max_decompressed_bytes=1 << 20)
    cursor = Cursor(TopicPartition("t", 0), 1)
    chunk = ReadChunks(API, writer, cursor, info)._step()
    assert (chunk.data, chunk.next_offset) == (b'{"offset":1}\n', 2)
    assert cursor.position == 2


def test_a_fetch_of_one_partition_gives_what_was_read() -> None:
    world, info = overtaken()
    bounds = routes._Bounds(1 << 20, 10, 1 << 20)
    page = routes._page(world.log, info, 1, EmbeddedFormat.BINARY, bounds)
    assert (page.count, page.next_offset) == (1, 2)


def test_a_consumer_gets_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = PollWorld(ConsumerConfig(reset=Reset.EARLIEST))
    poll.append("a", "b", "c")
    api_fetch = poll.sim.operations.fetch

    def fetch(*arguments: Any, **more: Any) -> FetchDataInfo:
        return api_fetch(*arguments, **more)._replace(log_start_offset=3)

    monkeypatch.setattr(poll.sim.operations, "fetch", fetch)  # as if deleted behind the read
    assert asyncio.run(poll.run(1000)) == [(TopicPartition("t", 0), 0, 3)]


@pytest.mark.parametrize(("reset", "position"), [(Reset.EARLIEST, 2), (Reset.LATEST, 4)])
def test_a_consumer_whose_records_go_is_reset(reset: Reset, position: int) -> None:
    """Between the look at its position and the read: as ``auto.offset.reset`` says, no error."""
    poll = PollWorld(ConsumerConfig(reset=reset))
    poll.append("a", "b", "c")
    log = poll.sim.manager.logs.log_of("t", 0)
    poll.consumer.seek({log.topic_partition: 0})

    def delete() -> None:
        log.delete_records(2)
        poll.append("d")

    once_before(log, "read", delete)
    pages = asyncio.run(poll.run(100))
    assert pages == ([(log.topic_partition, 2, 4)] if position == 2 else [])
    assert poll.consumer.position(log.topic_partition) == position


def test_a_page_ends_where_records_went() -> None:
    poll = PollWorld(ConsumerConfig())
    log = poll.sim.manager.logs.log_of("t", 0)
    poll.append("a", "b")
    log.roll()
    poll.append("c", "d")
    log.roll()
    once_before(log, "read", lambda: once_before(log, "read", lambda: log.delete_records(3)))
    cursor = Cursor(log.topic_partition, 0)
    pool = ThreadPoolExecutor(1)

    async def page() -> bytes:
        api = api_over(poll.sim, SETTINGS, pool)
        source = RecordSource(api, [cursor], Isolation.HIGH_WATERMARK)
        shape = RecordShape(value_format="text", fields=frozenset({"offset"}))
        writer = PAGES[JSON](shape, Bounds(), max_decompressed_bytes=1 << 20)
        return await collect(api, source, writer, max_bytes=1 << 20, min_bytes=1, max_wait_ms=0)

    assert json.loads(asyncio.run(page())) == [{"offset": 0}, {"offset": 1}]
    assert cursor.position == 2
    with pytest.raises(OffsetBelowLogStart):
        asyncio.run(page())
    pool.shutdown()


RECORDS = 30
# The index has no entry: a read walks from the segment's start, a slice of the file at a time.
DELETED_CONFIG = LogConfig(
    internal_segment_bytes=60_000, index_interval_bytes=1 << 20, retention_bytes=0
)


def written_segments() -> PartitionWorld:
    """Segments of batches of about a kilobyte, all cold."""
    world = PartitionWorld(DELETED_CONFIG)
    for number in range(4 * RECORDS):
        world.append(batch([b"%06d" % number + b"v" * 900]))
    assert len(world.log.segments) >= 2
    world.reopen(clean=True)
    return world


def delete_everything(world: PartitionWorld) -> None:
    """A pass that takes every segment, and its delete-file tasks."""
    planned = execute.plan_of(world.log, NOW_MS)
    base = execute.begin(world.log, planned)
    world.flush()
    execute.raise_start(world.log, NOW_MS, base)
    assert execute.finish(world.log)
    world.clock.advance_ms(DELETED_CONFIG.file_delete_delay_ms)
    assert not [name for name in world.names() if name.endswith(".deleted")]


class Interrupted:
    """One read, in the middle of which everything is deleted: at its ``nth`` disk call."""

    def __init__(self, world: PartitionWorld, nth: int) -> None:
        self.world = world
        self.left = nth
        self.calls = 0

    def on_call(self) -> None:
        self.calls += 1
        self.left -= 1
        if self.left == 0:
            self.world.filesystem.on_call = None
            delete_everything(self.world)

    def read(self, offset: int, max_bytes: int, *, may_block: bool) -> list[bytes | None]:
        """Values of the answer; it holds whole batches from ``offset`` on."""
        self.world.filesystem.on_call = self.on_call
        try:
            answer = self.world.log.read(
                offset, max_bytes, Isolation.HIGH_WATERMARK, may_block=may_block
            )
        finally:
            self.world.filesystem.on_call = None
        records = records_of(answer.data)
        assert [record.offset for record in records] == [*range(offset, answer.next_offset)]
        return [record.value for record in records]


def warm(world: PartitionWorld) -> None:
    """What makes a read need neither an open nor an index from disk."""
    for offset in range(world.log.log_end_offset):
        world.log.read(offset, 1, Isolation.HIGH_WATERMARK)


@pytest.mark.parametrize("is_hot", [False, True], ids=["cold", "hot"])
@pytest.mark.parametrize("max_bytes", [1, 5_000, 1 << 20])
@pytest.mark.parametrize("offset", [0, 25, 50])
def test_a_reader_of_what_is_being_deleted(offset: int, max_bytes: int, *, is_hot: bool) -> None:
    """M09 M12: the answer that it would have had, or OffsetBelowLogStart, at every moment."""
    world = written_segments()
    if is_hot:
        warm(world)
    whole = Interrupted(world, 0)
    expected = whole.read(offset, max_bytes, may_block=not is_hot)
    assert expected
    answered = 0
    for nth in range(1, whole.calls + 1):
        world = written_segments()
        if is_hot:
            warm(world)
        reader = Interrupted(world, nth)
        try:
            assert reader.read(offset, max_bytes, may_block=not is_hot) == expected
            answered += 1
        except OffsetBelowLogStart:
            assert not is_hot, "who holds the file reads on"
        except WouldBlock:  # the event loop asks a reader thread, which finds what is true now
            with pytest.raises(OffsetBelowLogStart):
                reader.read(offset, max_bytes, may_block=True)
        assert world.log.log_start_offset == 4 * RECORDS
        check_invariants(world.log)
    assert answered, "with the file open the rest is read"
