"""Goal: a plan over an object store makes few requests, many at once, and none for what it knows;
its pieces are those of one table of every index entry.
Method: a store of fsspec that counts requests, in simulated time (`latency_store`).
"""

from __future__ import annotations

import pickle
import random
import threading
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import encode_partition_metadata
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.jobs.audit import plan_tasks
from kafkalog.jobs.fleet import find_partitions
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.listed_store import Concurrent
from kafkalog.spark.logs.object_store import filesystem_for
from kafkalog.spark.logs.open import require_same_topic
from kafkalog.spark.logs.plan_cache import Neighbours, PlanCache, Versions
from kafkalog.spark.logs.values import Access, DataLost, OffsetRange, Piece
from kafkalog.spark.offsets import Wanted
from kafkalog.spark.options import batch_options, stream_options
from kafkalog.spark.planning import (
    OffsetReader,
    PartitionsGone,
    StreamOffset,
    batch_pieces,
    pieces_of,
)
from tests.cleaner_world import DIRECTORY, CleanerWorld
from tests.naive.cleaning_logs import make_log
from tests.naive.spark_pieces import plain_pieces
from tests.sim.sim_clock import SimClock
from tests.spark.latency_store import (
    SEGMENT_BYTES,
    SEGMENT_OFFSETS,
    TIME,
    TOPIC_ID,
    SimulatedRequests,
    World,
    index_table,
    plant,
    registered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

LOGS = "latency://store/logs"
OPTIONS = {"path": LOGS, "subscribe": "t"}
TARGET_BYTES = 128 << 20


@pytest.fixture
def world() -> Iterator[World]:
    yield from registered(World())


def opened(
    world: World, cache: PlanCache | None = None, clock: SimClock | None = None
) -> DirectoryLogs:
    return DirectoryLogs(
        Access(paths=(LOGS,)),
        requests=SimulatedRequests(world),
        cache=PlanCache() if cache is None else cache,
        clock=clock or SimClock(),
    )


def planned(world: World, cache: PlanCache | None = None, **options: str) -> list[Piece]:
    """A batch query's pieces; afterwards the world has the requests and the time of this plan."""
    world.requests.clear()
    world.now = 0.0
    given = batch_options(OPTIONS | options)
    logs = opened(world, cache)
    return batch_pieces(logs, given, Wanted())


def requests_of(world: World) -> int:
    return sum(world.requests.values())


@pytest.mark.parametrize(("partitions", "segments"), [(16, 625), (1, 10_000), (500, 20)])
def test_a_plan_of_10_000_segments_takes_6_seconds_at_20_ms(
    world: World, partitions: int, segments: int
) -> None:
    """100,000 segments in 60 s: requests, pages of listings included, and their critical path."""
    plant(world, "/logs", "t", partitions, segments)
    pieces = planned(world)
    count = partitions * segments
    assert sum(each.size_bytes for each in pieces) > count * SEGMENT_BYTES
    assert requests_of(world) < 1.3 * count
    assert world.now < 6.0
    assert world.requests["list"] <= 1 + 1 + partitions * (1 + segments * 4 // 1_000)
    assert world.bytes_read < len(pieces) * 16_000 + partitions * 300_000


def test_a_task_has_its_own_part_alone(world: World) -> None:
    """Goal: the bytes of a task do not grow with the log, those of all tasks only with it.
    Method: the largest task of a query and of an audit, of logs of 10 and of 100 segments.
    """
    largest = []
    for segments in (10, 100):
        log_dir = f"{LOGS}-{segments}"
        plant(world, f"/logs-{segments}", "t", 2, segments)
        found = find_partitions([log_dir], filesystem_for([log_dir]))
        audits = [plan_tasks(each, filesystem_for([log_dir]), TARGET_BYTES) for each in found]
        given = batch_options({"path": log_dir, "subscribe": "t"})
        logs = DirectoryLogs(given.access, requests=SimulatedRequests(world), cache=PlanCache())
        tasks = *batch_pieces(logs, given, Wanted()), *(each for some in audits for each in some)
        assert len(tasks) > 2 * 2 * segments * 0.7
        largest.append(max(len(pickle.dumps(each)) for each in tasks))
    assert largest[1] <= largest[0] + 16


def test_a_second_plan_asks_for_listings_alone(world: World) -> None:
    """The next job, or the next micro-batch: what has the same identity is not read again."""
    plant(world, "/logs", "t", 4, 50)
    cache = PlanCache()
    first = planned(world, cache)
    assert planned(world, cache) == first
    assert dict(world.requests) == {"list": 5}


def test_the_next_plan_reads_what_has_changed(world: World) -> None:
    """One partition has three segments more, in another one the index of a piece is replaced."""
    plant(world, "/logs", "t", 4, 50)
    cache = PlanCache()
    planned(world, cache)
    index = index_table()
    grown, replaced = world.directories["/logs/t-1"], world.directories["/logs/t-2"]
    active = grown.pop(f"{50 * SEGMENT_OFFSETS:020d}.log")
    for segment in range(50, 53):
        for suffix in (".log", ".index"):
            name = f"{segment * SEGMENT_OFFSETS:020d}{suffix}"
            old = replaced[f"{SEGMENT_OFFSETS:020d}{suffix}"]
            grown[name] = type(old)(old.size, old.data, "new")
    grown[f"{53 * SEGMENT_OFFSETS:020d}.log"] = type(active)(0, b"", "new")
    name = f"{SEGMENT_OFFSETS:020d}.index"
    replaced[name] = type(active)(len(index) - 8, index[:-8], "new")
    ends = (50, 53, 50, 50)
    lines = "".join(f"t {at} {end * SEGMENT_OFFSETS}\n" for at, end in enumerate(ends))
    world.put("/logs/recovery-point-offset-checkpoint", f"0\n4\n{lines}".encode(), "new")
    pieces = planned(world, cache)
    assert world.requests["list"] == 5
    assert requests_of(world) - 5 <= 1 + 3 * 2 + 2 + 4  # checkpoint, segments, index, new end
    assert pieces == planned(world)


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_range_of_whole_segments_reads_at_most_its_last_index(
    world: World, partitions: int
) -> None:
    """Nothing is searched for in a segment that a piece has whole, nor at the start."""
    plant(world, "/logs", "t", partitions, 40)
    logs = opened(world)
    logs.topics()
    world.requests.clear()
    ranges = [
        OffsetRange("t", number, 3 * SEGMENT_OFFSETS, 30 * SEGMENT_OFFSETS)
        for number in range(partitions)
    ]
    pieces = logs.all_pieces(ranges, 1 << 50)
    assert len(pieces) == partitions
    assert world.requests["get"] == partitions
    assert world.requests["info"] == 0


def test_a_stream_plans_only_what_it_reads(world: World) -> None:
    """The new segments of a micro-batch cost as much as they do in a short log."""
    plant(world, "/logs", "t", 1, 5_000)
    logs = opened(world)
    logs.topics()
    world.requests.clear()
    begin, end = 4_990 * SEGMENT_OFFSETS + 17, 5_000 * SEGMENT_OFFSETS + 10
    pieces = logs.pieces(OffsetRange("t", 0, begin, end), TARGET_BYTES)
    assert len(pieces) > 5
    assert world.requests["get"] <= len(pieces) + 3
    assert world.requests["list"] == 21


@pytest.mark.parametrize("batch_bytes", [12_000, 70_000])
def test_pieces_are_those_of_every_index_read_whole(world: World, batch_bytes: int) -> None:
    """Over a store, with known neighbours and objects that change between plans."""
    chance, cache = random.Random(batch_bytes), PlanCache()
    plant(world, "/logs", "t", 2, 12, batch_bytes)
    store = filesystem_for([LOGS])
    for _ in range(12):
        logs = opened(world, cache)
        number = chance.randrange(2)
        bounds = logs.bounds("t", number)
        begin, end = sorted(chance.randint(*bounds) for _ in range(2))
        target = chance.choice((3 << 20, 40 << 20, TARGET_BYTES, 1 << 40))
        wanted = OffsetRange("t", number, *chance.choice((tuple(bounds), (begin, end + 1))))
        place = f"{LOGS}/t-{number}"
        assert logs.pieces(wanted, target) == plain_pieces(store, place, wanted, target)
        files = world.directories[f"/logs/t-{number}"]
        name = chance.choice([each for each in files if each.endswith(".index")])
        data = files[name].data
        if data is not None:
            files[name] = type(files[name])(len(data) - 80, data[:-80], files[name].etag + "x")


def test_a_start_by_time_reads_the_ends_of_time_indexes(world: World) -> None:
    """Together, up to the segment that has the record; the next look-up knows them."""
    plant(world, "/logs", "t", 4, 500)
    cache = PlanCache()
    there = [TopicPartition("t", number) for number in range(4)]
    stamp, end = TIME + 500 * SEGMENT_OFFSETS + 3, 500 * SEGMENT_OFFSETS
    times = dict.fromkeys(there, stamp)
    logs = opened(world, cache)
    logs.topics()
    world.requests.clear()
    world.now = 0.0
    assert logs.all_offsets_at(times) == dict.fromkeys(there, end + 3)
    assert requests_of(world) < 4 * 500 * 1.05
    assert world.now < 1.5
    world.requests.clear()
    assert opened(world, cache).all_offsets_at(times) == dict.fromkeys(there, end + 3)
    assert requests_of(world) <= 5 + 4 * 10
    late = logs.all_offsets_at(dict.fromkeys(there, stamp + 1_000_000))
    assert late == dict.fromkeys(there)


@pytest.mark.parametrize("seed", range(12))
def test_a_start_by_time_is_that_of_every_index_read_whole(world: World, seed: int) -> None:
    """Of a log by chance, as it lies on a disk, whose segments are looked up one by one."""
    chance = random.Random(seed)
    disk = CleanerWorld(make_log(chance).segments).disk
    for name in disk.list_dir(DIRECTORY):
        data = disk.read_file(f"{DIRECTORY}/{name}")
        if name.endswith(".timeindex") and chance.random() < 0.3:
            data = chance.choice((b"", data + bytes(24), data[:-5]))
            disk.unlink(f"{DIRECTORY}/{name}")
            disk.open_write(f"{DIRECTORY}/{name}").pwrite(data, 0)
        world.put(f"/logs/orders-0/{name}", data)
    cache, plain = PlanCache(), DirectoryLogs(Access(paths=("/logs",)), disk)
    world.put("/logs/x", b"")
    for _ in range(12):
        stamp = 1_700_000_000_000 + chance.randint(-400, 20_000)
        assert opened(world, cache).offset_at("orders", 0, stamp) == plain.offset_at(
            "orders", 0, stamp
        )


def test_a_failed_request_is_sent_again(world: World) -> None:
    """Each request that fails costs a pause and a line, not the plan; pauses double."""
    plant(world, "/logs", "t", 2, 30)
    expected = planned(world)
    failures = dict.fromkeys(("list", "get", "info"), 3)

    def fail(kind: str, path: str) -> None:
        if failures[kind]:
            failures[kind] -= 1
            raise OSError(None, f"503 Slow Down: {path}")

    world.before_request = fail
    clock = SimClock()
    logs = opened(world, clock=clock)
    begun = clock.monotonic_ns()
    given = batch_options(OPTIONS)
    with capture_logs() as lines:
        assert batch_pieces(logs, given, Wanted()) == expected
    assert not any(failures.values())
    assert len(lines) == 9
    assert {each["event"] for each in lines} == {"store_request_retried"}
    assert 3 * 0.7 <= (clock.monotonic_ns() - begun) / 1e9 <= 3 * 0.7 * 2


def test_a_request_that_keeps_failing_ends_the_plan(world: World) -> None:
    """After six tries the error is the library's; a missing object is not asked for again."""
    plant(world, "/logs", "t", 1, 3)
    logs = opened(world)
    logs.topics()
    tries = []

    def fail(kind: str, path: str) -> None:
        tries.append((kind, path))
        raise OSError(None, "503 Slow Down")

    world.before_request = fail
    with pytest.raises(OSError, match="503 Slow Down"):
        logs.pieces(OffsetRange("t", 0, 0, 10), 1)
    assert tries == [("list", "/logs/t-0")] * 6
    world.before_request = None
    world.requests.clear()
    with pytest.raises(UnknownTopic):
        opened(world).pieces(OffsetRange("none", 0, 0, 10), 1)
    assert dict(world.requests) == {"list": 1}


def test_a_partition_that_was_deleted_after_its_listing(world: World) -> None:
    """It is left out of the bounds, as on a disk, and ends a plan with the partition's name."""
    plant(world, "/logs", "t", 2, 3)
    logs = opened(world)
    logs.topics()
    del world.directories["/logs/t-1"]
    there = [TopicPartition("t", number) for number in range(2)]
    assert list(logs.all_bounds(there)) == there[:1]


def test_a_partition_that_was_deleted_after_its_range_was_planned(world: World) -> None:
    """The other one is planned; a plan of a query says how far the deleted one was read."""
    plant(world, "/logs", "t", 2, 3)
    logs, given = opened(world), batch_options(OPTIONS)
    logs.topics()
    ranges = [OffsetRange("t", number, 5, 900) for number in range(2)]
    del world.directories["/logs/t-1"]
    assert [each.range for each in logs.all_pieces(ranges, TARGET_BYTES)] == ranges[:1]
    with pytest.raises(PartitionsGone, match=r"t-1 \(read up to 5\)"):
        pieces_of(logs, given, ranges, {})
    with pytest.raises(UnknownPartition):
        logs.pieces(ranges[1], TARGET_BYTES)


def test_the_id_of_a_topic_is_read_again_when_its_file_has_changed(world: World) -> None:
    """Of all partitions together, once; a stream notices the other topic."""
    plant(world, "/logs", "t", 4, 3)
    logs, given = opened(world), stream_options(OPTIONS)
    reader = OffsetReader(logs, given)
    there = reader.partitions()
    world.requests.clear()
    world.now = 0.0
    before = reader.topic_ids(there)
    assert before == {"t": encode_id(TOPIC_ID)}
    assert dict(world.requests) == {"list": 4, "get": 4}
    assert world.now == pytest.approx(2 * world.latency_seconds)
    read = StreamOffset(dict.fromkeys(there, 10), before)
    world.requests.clear()
    assert reader.continued(read) == (there, before)
    assert dict(world.requests) == {"list": 5}
    other = encode_partition_metadata(UUID(int=8))
    for each in there:
        world.put(f"/logs/{each}/{PARTITION_METADATA}", other, "2")
    with pytest.raises(DataLost, match=r"t-0 from offset 10 on.*recreated"):
        reader.continued(read)


def test_a_task_asks_for_the_id_until_it_has_an_answer(world: World) -> None:
    """One failed request does not cost the records that the task has read."""
    plant(world, "/logs", "t", 1, 1)
    access = Access(paths=(LOGS,))
    piece = Piece(OffsetRange("t", 0, 0, 1), f"{LOGS}/t-0", None, 1, encode_id(TOPIC_ID))
    failures = ["503 Slow Down"]

    def fail(kind: str, path: str) -> None:
        if failures:
            raise OSError(None, failures.pop())

    world.before_request = fail
    require_same_topic(piece, access)
    assert (dict(world.requests), failures) == ({"get": 2}, [])
    other = encode_partition_metadata(UUID(int=8))
    world.put(f"/logs/t-0/{PARTITION_METADATA}", other, "2")
    with pytest.raises(DataLost, match="recreated"):
        require_same_topic(piece, access)


def test_requests_at_once_are_bounded(world: World) -> None:
    """As many as option maxConcurrentRequests allows, and no more; also after an error."""
    plant(world, "/logs", "t", 12, 40)
    lock, meeting = threading.Lock(), threading.Barrier(3)
    under_way = most = 0

    def count(kind: str, path: str) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        if kind == "get" and path.endswith(".index") and not meeting.broken:
            meeting.wait(10)  # three are under way at once
            meeting.abort()
        with lock:
            under_way -= 1

    given = batch_options(OPTIONS | {"maxConcurrentRequests": "3"})
    assert given.access.max_concurrent_requests == 3
    expected = planned(world)

    def count_unbroken(kind: str, path: str) -> None:
        try:
            count(kind, path)
        except threading.BrokenBarrierError:
            with lock:
                nonlocal under_way
                under_way -= 1

    world.before_request = count_unbroken
    logs = DirectoryLogs(given.access, cache=PlanCache())
    assert batch_pieces(logs, given, Wanted()) == expected
    logs.close()
    assert most == 3
    assert under_way == 0


def test_an_error_ends_the_requests_that_wait() -> None:
    requests, seen = Concurrent(1), []

    def work(number: int) -> int:
        seen.append(number)
        if number == 1:
            raise OSError("refused")
        return number

    with pytest.raises(OSError, match="refused"):
        requests.map(work, range(1_000))
    requests.close()
    assert len(seen) < 1_000
    assert requests.map(work, [5, 6]) == [5, 6]
    requests.close()


def test_a_cache_is_bounded() -> None:
    """The oldest entry goes; another identity takes the place of the old one."""
    versions: Versions[str, int] = Versions(2)
    for number, key in enumerate(("a", "b", "a", "c")):
        versions.put(key, number, number)
    assert [versions.get(*each) for each in (("a", 2), ("a", 0), ("b", 1), ("c", 3))] == [
        *(2, None, None, 3)
    ]
    neighbours = Neighbours()
    for number in range(1, 100):
        neighbours.add((number, number * 10), (number + 1, number * 10 + 10))
    assert neighbours.around(0, 100) == ((99, 990), (100, 1000))
    assert neighbours.around(1, 995) == ((99, 990), (100, 1000))
    assert neighbours.around(0, 2) is None
    neighbours.add(None, (1, 10))
    neighbours.add((100, 1000), None)
    assert neighbours.around(0, 1) == (None, (1, 10))
    assert neighbours.around(1, 5_000) == ((100, 1000), None)
