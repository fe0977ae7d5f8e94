"""Goal: Kafka takes a directory that kafkalog's log wrote, moved or began to move or swap, for one
of its own, and kafkalog what Kafka made of it.
Method: a real broker and Kafka's classes over the same directories, cut off at each step.
"""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.cli.offline.scan import scan_lines
from kafkalog.env.clock import SystemClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from tests.integration.daemon import Daemon
from tests.integration.http_world import end_offset, until
from tests.integration.test_http_partition_moves import described, ended, move
from tests.log_world import flush
from tests.oracle.kafka import files_in, record
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.partition_world import NOW_MS
from tests.swap_world import CASES, LOG_END, SwapWorld

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog
    from tests.oracle.kafka import Broker, Kafka
    from tests.swap_world import Content


pytestmark = pytest.mark.oracle
TIME = 1_700_000_000_000
CONFIG = LogConfig(
    internal_segment_bytes=6000, index_interval_bytes=300, segment_index_bytes=100_000
)
SETS = ("--set", "internal.segment.bytes=6000", "--set", "index.interval.bytes=300")


def open_log(directory: Path, *, clean: bool) -> UnifiedLog:
    log = load_log(str(directory), CONFIG, tool_environment(SystemClock()), clean=clean)
    log.update_high_watermark(log.log_end_offset)
    return log


def append(log: UnifiedLog, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    records = validate(data, CONFIG, TIME, origin, max_decompressed_bytes=1 << 24)
    log.append(records, synced=False)


def some_batch(
    chance: random.Random, codec: Codec, producer: tuple[int, int, int], txn: bool
) -> bytes:
    """Random keys, values with nulls, timestamps that jump to and fro."""
    count = chance.randrange(1, 12)
    keys = [None if chance.random() < 0.2 else chance.randbytes(8) for _ in range(count)]
    values = [None if chance.random() < 0.2 else chance.randbytes(60) for _ in range(count)]
    times = [TIME + chance.randrange(10**6) for _ in range(count)]
    return build_batch(
        RecordColumns.of(keys, values, times),
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=txn,
    )


def write_everything(log: UnifiedLog) -> None:
    """All codecs; producers; transactions that were committed, aborted and left open."""
    chance = random.Random(4)
    for number in range(60):
        append(log, some_batch(chance, Codec(number % 5), (-1, -1, -1), txn=False))
        append(log, some_batch(chance, Codec.NONE, (1000 + number, 0, 0), txn=False))
        append(log, some_batch(chance, Codec.LZ4, (2000 + number, 0, 0), txn=True))
        if number % 3 < 2:
            end = (ControlRecordType.ABORT, ControlRecordType.COMMIT)[number % 2]
            marker = build_end_transaction_marker(2000 + number, 0, 0, end, timestamp_ms=TIME)
            append(log, marker, AppendOrigin.COORDINATOR)


def close(log: UnifiedLog) -> None:
    flush(log)
    log.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition written in two lives."""
    directory = tmp_path_factory.mktemp("crossing") / "orders-0"
    directory.mkdir()
    log = open_log(directory, clean=False)
    write_everything(log)
    close(log)
    log = open_log(directory, clean=True)
    append(log, some_batch(random.Random(1), Codec.ZSTD, (9, 0, 0), txn=False))
    close(log)
    return directory


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_loads_what_we_wrote(
    kafka: Kafka, written: Path, tmp_path: Path, clean: bool
) -> None:
    """M02 M04 M05 M14 M25: the same state as we find, and after a clean load the same files."""
    options = LoadOptions(clean=clean, now_ms=TIME)
    sets = {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}
    case = LoadCase(written, tmp_path, options, sets)
    flags = [*SETS, "--now", str(TIME), *(["--clean"] if clean else [])]
    theirs = kafka.load(written, case.kafkas, *flags)
    assert comparable(case.load()) == comparable(theirs)
    assert differing_files(case.kafkas, case.ours) == []
    assert len(theirs["loaded"]["segments"]) > 5
    if clean:
        # The snapshot of the first life's end belongs to no segment: a later load removes it.
        changed = differing_files(written, case.kafkas)
        assert [name for name in changed if (case.kafkas / name).exists()] == []


def test_kafka_reads_what_we_wrote(kafka: Kafka, written: Path) -> None:
    """M02: every record, also from an offset inside."""
    for start in (0, 333):
        ours = scan_lines(SystemFilesystem(), str(written), start, committed=False)
        assert kafka.scan(written, start) == [line.removesuffix("\n") for line in ours]


def check_dump(kafka: Kafka, directory: Path) -> None:
    """Logs record by record, indexes, snapshots: neither Kafka's tool nor ours finds anything."""
    assert verify_directory(str(directory), SystemFilesystem()) == []
    for flag in ("--deep-iteration", "--index-sanity-check"):
        dumped = kafka.dump("--files", files_in(directory), flag)
        assert (dumped.status, dumped.stderr) == (0, "")


def test_kafkas_dump_has_no_findings(kafka: Kafka, written: Path) -> None:
    """M07."""
    check_dump(kafka, written)


def test_kafka_finds_the_same_in_a_moved_partition(kafka: Kafka, tmp_path: Path) -> None:
    """Offsets, the last stable offset, epochs and every record are the same."""
    source = tmp_path / "source" / "orders-0"
    source.mkdir(parents=True)
    log = open_log(source, clean=False)
    write_everything(log)
    close(log)
    daemon = Daemon(tmp_path / "daemon", log_dirs=2, log_segment_bytes="1048576")
    shutil.copytree(source, daemon.log_dirs[0] / "orders-0")
    with daemon:
        move(daemon, 1, "orders")
        entry = ended(daemon)
        assert (entry["state"], entry["reason"]) == ("done", None)
        moved = daemon.log_dirs[1] / "orders-0"
    now = str(int(time.time() * 1000))
    before = kafka.load(source, tmp_path / "before" / "orders-0", "--clean", "--now", now)["loaded"]
    after = kafka.load(moved, tmp_path / "after" / "orders-0", "--clean", "--now", now)["loaded"]
    for name in ("logStartOffset", "logEndOffset", "lastStableOffset"):
        assert after[name] == before[name], name
    assert after["lastStableOffset"] < after["logEndOffset"]
    assert (moved / LEADER_EPOCH_CHECKPOINT).read_bytes() == (
        source / LEADER_EPOCH_CHECKPOINT
    ).read_bytes()
    assert kafka.scan(moved) == kafka.scan(source)
    check_dump(kafka, moved)


def names(directory: Path, prefix: str) -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.name.startswith(prefix))


def test_kafka_goes_on_with_our_copy(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """A -future of ours is a future replica to Kafka, which fills it and takes it into use."""
    roots = [tmp_path / "data", tmp_path / "other"]
    broker = new_broker(f"log.dirs={roots[0]},{roots[1]}")
    broker.create_topic("moving")
    broker.produce("moving", [record(b"k", b"v" * 1000) for _ in range(3000)])
    expected = broker.consume("moving")
    broker.stop()
    here = next(index for index, root in enumerate(roots) if names(root, "moving"))
    daemon = Daemon(
        tmp_path / "daemon", node_id="1", replica_alter_log_dirs_io_max_bytes_per_second="1000"
    )
    daemon.log_dirs = roots
    with daemon:
        assert move(daemon, 1 - here, "moving")["state"] == "copying"
        (left,) = names(roots[1 - here], "moving")
        assert left.endswith("-future")
        copied = roots[1 - here] / left / "00000000000000000000.log"
        until(lambda: copied.stat().st_size > 0, "nothing was copied")
        daemon.kill()
        whole = roots[here] / "moving-0" / "00000000000000000000.log"
        assert copied.stat().st_size < whole.stat().st_size
        broker.start()
        until(lambda: names(roots[1 - here], "moving") == ["moving-0"], "the copy was not made")
        assert broker.consume("moving") == expected
        broker.stop()
        daemon.start()
        assert end_offset(daemon, "moving") == 3000
        there = described(daemon)[1 - here]
        assert "moving-0" in [each["partition"] for each in there["partitions"]]


CRASHED = LoadOptions(now_ms=NOW_MS, recovery_point=LOG_END)
CONFIGS = {"cleanup.policy": "compact", "segment.index.bytes": "96", "index.interval.bytes": "100"}


class RecordingFilesystem(SystemFilesystem):
    """Copies a directory before each change of a name in it, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._states: Path | None = None
        self.copies: list[Path] = []

    def record_to(self, states: Path) -> None:
        self._states = states

    def keep(self, directory: str) -> None:
        if self._states is not None:
            name = directory.rpartition("/")[2]
            copy = self._states / str(len(self.copies)) / name
            shutil.copytree(directory, copy)
            self.copies.append(copy)

    def rename(self, source: str, target: str) -> None:
        self.keep(source.rpartition("/")[0])
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.keep(path.rpartition("/")[0])
        super().unlink(path)


def states_of(name: str, home: Path) -> tuple[list[Path], Content, Content]:
    """Every state of the directory during a swap, and what readers got before and after."""
    filesystem, directory = RecordingFilesystem(), home / "orders-0"
    directory.mkdir(parents=True)
    world = SwapWorld(filesystem, str(directory))
    world.fill()
    before = world.content()
    filesystem.record_to(home / "states")
    world.swap(CASES[name])
    filesystem.keep(str(directory))
    return filesystem.copies, before, world.content()


@pytest.fixture(scope="module")
def answers(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[list[tuple[LoadCase, Any]], Content, Content]]:
    """By the name of the swap: every state with Kafka's answer, the contents before and after."""
    home = tmp_path_factory.mktemp("swaps")
    found, cases = {}, []
    for number, name in enumerate(CASES):
        states, before, after = states_of(name, home / str(number))
        mine = [LoadCase(state, state.parent, CRASHED, CONFIGS) for state in states]
        cases += mine
        found[name] = (mine, before, after)
    results = iter(load_with_kafka(kafka, home, cases))
    return {
        name: ([(case, next(results)) for case in mine], before, after)
        for name, (mine, before, after) in found.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_kafka_ends_our_swap(
    answers: dict[str, tuple[list[tuple[LoadCase, Any]], Content, Content]], name: str
) -> None:
    """M20: the same files as after our load, with the old or the new content, never back again."""
    states, before, after = answers[name]
    contents = []
    for case, kafkas in states:
        ours = case.load()
        assert comparable(ours) == comparable(kafkas), case.source
        assert differing_files(case.kafkas, case.ours) == [], case.source
        contents.append(SwapWorld(SystemFilesystem(), str(case.kafkas)).content())
    changed = contents.index(after)
    assert contents == [before] * changed + [after] * (len(contents) - changed)
    assert 0 < changed < len(contents) - 1
