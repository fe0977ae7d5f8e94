"""Goal: whoever reads a log directory for Spark never sees a wrong record, whatever a daemon does.
Method: logs by chance on a simulated disk; a cleaning, a retention pass or a roll happens whole at
each disk call of a reader, and many readers move by a chunk at each disk call of the daemon.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.directory_reader import read_directory_piece
from kafkalog.spark.logs.values import Access, CorruptLog, DataLost, OffsetRange, Piece
from kafkalog.spark.reading import record_batches
from tests.cleaner_world import COMPACT, DIRECTORY, NOW_MS, CleanerWorld
from tests.naive.cleaning_logs import make_log
from tests.spark_reads import SPARK_SCHEMA, Row, plain_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.spark.logs.values import Chunk

# Logs by chance: aborted and open transactions; gaps near 2^31; every codec, gaps and aborts.
LOGS = pytest.mark.parametrize(
    ("seed", "read_committed"), [(16, True), (17, False), (37, True), (37, False)]
)
LATER_MS = NOW_MS + 10**9
BOTH = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}),
    segment_index_bytes=COMPACT.segment_index_bytes,
    index_interval_bytes=COMPACT.index_interval_bytes,
    delete_retention_ms=1_000,
    retention_ms=-1,
)
CHUNK_BYTES = 500


def clean(world: CleanerWorld) -> None:
    world.rounds(LATER_MS)
    world.clock.advance_ms(world.config.file_delete_delay_ms)


def retain(world: CleanerWorld) -> None:
    """Half of the segments go: the log start is moved, then a pass takes what lies below it."""
    bases = world.bases()
    world.log.delete_records(bases[len(bases) // 2])
    planned = execute.plan_of(world.log, NOW_MS)
    base = execute.begin(world.log, planned)
    world.flush()
    execute.raise_start(world.log, NOW_MS, base)
    assert execute.finish(world.log)
    world.clock.advance_ms(world.config.file_delete_delay_ms)


def roll(world: CleanerWorld) -> None:
    world.log.roll()
    world.flush()


CHANGES = pytest.mark.parametrize("change", [clean, retain, roll], ids=lambda each: each.__name__)


class Reader:
    """One reader of everything that was readable when it was planned."""

    def __init__(self, world: CleanerWorld, access: Access, pieces: list[Piece]) -> None:
        self._world = world
        self._access = access
        self._todo = pieces
        self._chunks: Iterator[Chunk] | None = None
        self._piece: Piece | None = None
        self.rows: list[Row] = []
        self.lost: list[OffsetRange] = []

    def step(self) -> bool:
        """One chunk; whether there may be more. What is lost is passed by, as Spark may."""
        if self._chunks is None:
            if not self._todo:
                return False
            self._piece = self._todo.pop(0)
            self._chunks = read_directory_piece(
                self._piece, self._access, CHUNK_BYTES, check_crcs=True, filesystem=self._world.disk
            )
        assert self._piece is not None
        try:
            chunk = next(self._chunks, None)
        except DataLost as loss:
            self.lost.append(loss.missing)
            rest = self._piece.range._replace(from_offset=loss.missing.to_offset)
            if rest.from_offset < rest.to_offset:
                self._todo.insert(0, Piece(rest, self._piece.place, None, 0))
            chunk = None
        if chunk is None:
            self._chunks = None
        else:
            self.rows += rows_of(record_batches([chunk], self._piece.range, SPARK_SCHEMA))
        return True

    def run(self) -> None:
        while self.step():
            pass


class Scene:
    """A log, what of it may be read, and what everybody has to find."""

    def __init__(self, seed: int, *, read_committed: bool) -> None:
        self.world = CleanerWorld(make_log(random.Random(seed)).segments, config=BOTH)
        self.access = Access(paths=("/logs",), read_committed=read_committed)
        self.logs = DirectoryLogs(self.access, self.world.disk)
        self.wanted = OffsetRange("orders", 0, *self.logs.bounds("orders", 0))
        self.before = {row["offset"]: row for row in self._plain()}

    def _plain(self) -> list[Row]:
        aborted = self.world.aborted() if self.access.read_committed else []
        return plain_rows(self.world.batches(), self.wanted, aborted)

    def reader(self) -> Reader:
        return Reader(self.world, self.access, self.logs.pieces(self.wanted, 700))

    def check(self, reader: Reader) -> None:
        """Rows rise, are those that were written, and hold all that is left."""
        offsets = [row["offset"] for row in reader.rows]
        assert offsets == sorted(set(offsets))
        assert all(row == self.before[row["offset"]] for row in reader.rows)
        left = {row["offset"] for row in self._plain()}
        assert left <= set(offsets)
        for missing in reader.lost:
            assert missing.to_offset <= self.world.bases()[0]


@CHANGES
@LOGS
def test_a_change_between_any_two_calls_of_a_reader(
    seed: int, read_committed: bool, change: Callable[[CleanerWorld], None]
) -> None:
    """M20 M21: planned before, read behind, and everything in between."""
    nth = 0
    while True:
        scene = Scene(seed, read_committed=read_committed)
        left = nth

        def on_call(scene: Scene = scene) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                scene.world.disk.on_call = None
                change(scene.world)

        scene.world.disk.on_call = on_call
        reader = scene.reader()
        reader.run()
        scene.world.disk.on_call = None
        scene.check(reader)
        if left > 0:
            break  # the reader ended before its nth call
        nth += 1 + nth // 6


@CHANGES
@LOGS
def test_readers_at_every_call_of_a_change(
    seed: int, read_committed: bool, change: Callable[[CleanerWorld], None]
) -> None:
    """M20 M21: one is planned at each call and reads at once; older ones move by a chunk."""
    scene = Scene(seed, read_committed=read_committed)
    slow: list[Reader] = []
    quick: list[Reader] = []
    disk = scene.world.disk

    def on_call() -> None:
        disk.on_call = None
        for each in slow[-3:]:
            each.step()
        if len(quick) % 9 == 0:
            slow.append(scene.reader())
        quick.append(scene.reader())
        quick[-1].run()
        disk.on_call = on_call

    disk.on_call = on_call
    change(scene.world)
    disk.on_call = None
    assert quick
    for each in (*slow, *quick):
        each.run()
        scene.check(each)


def test_a_batch_that_rots_is_never_passed_by() -> None:
    """M20: the error names topic, offset, file and byte; what lies before is given."""
    scene = Scene(8, read_committed=False)
    base = scene.world.bases()[1]
    path = f"{DIRECTORY}/{base:020d}.log"
    sound = [each for each in scene.world.batches() if each.header.base_offset < base]
    scene.world.disk.open_write(path).pwrite(b"\xff", 70)
    (piece,) = scene.logs.pieces(scene.wanted, 1 << 30)
    chunks = read_directory_piece(
        piece, scene.access, 1 << 20, check_crcs=True, filesystem=scene.world.disk
    )
    given = record_batches(chunks, piece.range, SPARK_SCHEMA)
    rows = rows_of([next(given)])
    with pytest.raises(CorruptLog, match="orders-0: the batch at offset") as rotten:
        next(given)
    assert (rotten.value.file, rotten.value.position) == (path, 0)
    assert rotten.value.base_offset == base
    assert rows == plain_rows(sound, scene.wanted)
