"""Goal: a partition that is split becomes what one round of the cleaner makes.
Method: directories with every kind of batch on the machine's disk, split at any size; offline
compact beside it, tasks that run twice.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from kafkalog.cleaner.cleaner_stats import CleanerStats
from kafkalog.errors import CorruptData
from kafkalog.format.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_marker_value,
)
from kafkalog.format.record import Record
from kafkalog.spark.jobs.key_rows import ROW_BYTES
from kafkalog.spark.jobs.split_tasks import OUTCOME_NAME, MergeTask, rewrite
from kafkalog.spark.jobs.tasks import InProcess
from tests.fleet_world import contents, kept_logging, keyed_segments, plant_partition
from tests.naive.cleaning_logs import TIME, MadeSegment, make_log
from tests.naive.stored_batches import CONTROL, TRANSACTIONAL, Producer, stored_batch
from tests.split_runners import (
    PHASES,
    LateRunner,
    TwiceRunner,
)
from tests.split_world import (
    NOW_MS,
    SEGMENT_BYTES,
    offline,
    run,
    small_groups,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.spark.jobs.tasks import Runner

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


def modified(directory: Path) -> dict[str, int]:
    """When closed segments were modified: retention of what has no timestamps goes by it."""
    closed = sorted(directory.glob("*.log"))[:-1]
    return {path.name: path.stat().st_mtime_ns for path in closed}


@pytest.mark.parametrize(("segment_bytes", "part_bytes"), [(300, 1), (2_000, 6_000), (10**6, 1)])
@pytest.mark.parametrize(
    "runner", [InProcess(), TwiceRunner()], ids=["in process", "every task twice"]
)
def test_files_are_those_of_offline_compact(
    tmp_path: Path,
    runner: Runner,
    segment_bytes: int,
    part_bytes: int,
) -> None:
    """Goal: byte for byte one round with a map for all keys, whatever the groups and the map are.
    Method: ten logs with every kind of batch, one with a log start inside; groups of one segment,
    of some, of all; as many parts of the keys as groups, and fewer; a map that is emptied again
    and again.
    """
    source = tmp_path / "a"
    for seed in range(10):
        plant_partition(source / f"t-{seed}", make_log(random.Random(seed)).segments)
    start = make_log(random.Random(3)).segments[1].base + 1
    (source / "log-start-offset-checkpoint").write_text(f"0\n1\nt 3 {start}\n")
    before = contents(source)
    rows = split(
        str(source),
        str(tmp_path / "out"),
        runner,
        segment_bytes=segment_bytes,
        map_bytes=100,
        part_bytes=part_bytes,
    )
    assert contents(source) == before
    assert [row.partition for row in rows] == list(range(10))
    assert {row.rounds for row in rows} <= {0, 1}
    for row in rows:
        name = f"t-{row.partition}"
        expected = offline(
            source / name,
            tmp_path / "check" / name,
            *("--map-bytes", "1000000", "--set", f"internal.segment.bytes={segment_bytes}"),
            *(("--log-start", str(start)) if row.partition == 3 else ()),
        )
        assert contents(tmp_path / "out" / name) == expected
        assert modified(tmp_path / "out" / name) == modified(tmp_path / "check" / name)
    names = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert names == {"cleaner-offset-checkpoint", "log-start-offset-checkpoint"}


@pytest.mark.slow
def test_the_command_splits_from_a_size_on(tmp_path: Path) -> None:
    """Goal: --split-bytes decides, and the rows are the same but for the rounds.
    Method: a large and a small partition, a small map, two processes.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(6, 5))
    plant_partition(source / "t-1", keyed_segments(1, 1))
    words = ("spark", "compact", "--dirs", source, "--now", str(NOW_MS), "--output", "json")
    some = (
        *words,
        "--processes",
        "2",
        "--map-bytes",
        "120",
        "--config",
        "internal.segment.bytes=1000",
    )
    whole = run(*some, "--out", tmp_path / "whole")
    done = run(*some, "--out", tmp_path / "split", "--split-bytes", "1000")
    assert done["rows"][0]["rounds"] == 1
    assert whole["rows"][0]["rounds"] > 1
    assert whole["rows"][1] == done["rows"][1]
    assert contents(tmp_path / "whole" / "t-1") == contents(tmp_path / "split" / "t-1")
    expected = offline(
        source / "t-0",
        tmp_path / "check" / "t-0",
        *("--map-bytes", "1000000", "--set", "internal.segment.bytes=1000"),
    )
    assert contents(tmp_path / "split" / "t-0") == expected


def test_keys_are_merged_in_parts_by_bytes(tmp_path: Path) -> None:
    """Goal: what is read does not grow with the square of the groups.
    Method: many groups of few bytes: one part.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(40, 5))
    runner = LateRunner()
    split(str(source), str(tmp_path / "out"), runner, segment_bytes=300)
    keys, merge, rewrite = (list(tasks) for tasks, _ in runner.phases)
    assert len(keys) == len(rewrite) == 40
    assert len(merge) == 1
    config = ("--map-bytes", "1000000", "--set", "internal.segment.bytes=300")
    expected = offline(source / "t-0", tmp_path / "check" / "t-0", *config)
    assert contents(tmp_path / "out" / "t-0") == expected


def test_what_travels_does_not_grow_with_parts(tmp_path: Path) -> None:
    """Goal: a driver ships and collects nothing of the number of groups times that of parts.
    Method: 40 of each; the tasks and results of every phase beside those of one part.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(40, 5))
    travelled: dict[str, list[int]] = {}

    class Weighed:
        def __init__(self, name: str) -> None:
            self._sizes = travelled.setdefault(name, [])

        def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
            results = InProcess().run(tasks, work, on_done)
            self._sizes += [
                max(len(pickle.dumps(each)) for each in tasks),
                len(pickle.dumps(results)),
            ]
            return results

    for name, part_bytes in (("whole", 1 << 30), ("parts", 1)):
        out = str(tmp_path / name)
        split(str(source), out, Weighed(name), segment_bytes=300, part_bytes=part_bytes)
    keys, keys_results, merge, merge_results, rewrite, _ = travelled["parts"]
    assert keys == pytest.approx(travelled["whole"][0], abs=8)
    assert keys_results == pytest.approx(travelled["whole"][1], abs=8)
    assert merge == pytest.approx(travelled["whole"][2], abs=8)
    assert merge < 1_000
    assert merge_results < 200
    assert rewrite == pytest.approx(travelled["whole"][4], abs=8)
    assert contents(tmp_path / "parts" / "t-0") == contents(tmp_path / "whole" / "t-0")


def test_a_group_that_was_read_with_a_wrong_guess_is_read_again(tmp_path: Path) -> None:
    """Goal: the keys that count are those of the last attempt.
    Method: a log whose abort marker is missing although its transaction index tells of it: what the
    producer writes next is left out, too, until its next marker.
    """
    abort, commit = (
        (encode_control_key(kind), encode_marker_value(0))
        for kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    )

    def marker(offset: int, pair: tuple[bytes, bytes]) -> bytes:
        some = [Record(offset, TIME, *pair)]
        return stored_batch(some, attributes=TRANSACTIONAL | CONTROL, producer=Producer(7, 0))

    def data(offset: int, key: bytes, sequence: int) -> bytes:
        some = [Record(offset, TIME, key, b"v%d" % offset)]
        return stored_batch(some, attributes=TRANSACTIONAL, producer=Producer(7, 0, sequence))

    def plain(offset: int, key: bytes) -> bytes:
        return stored_batch([Record(offset, TIME, key, b"v%d" % offset)])

    segments = [
        MadeSegment(0, TIME, [plain(0, b"a"), plain(1, b"b"), data(2, b"a", 0)]),
        MadeSegment(3, TIME, [marker(3, abort), plain(4, b"c")]),
        MadeSegment(5, TIME, [data(5, b"a", 1), plain(6, b"b"), data(7, b"c", 2)]),
        MadeSegment(8, TIME, [marker(8, commit), data(9, b"b", 3), marker(10, commit)]),
    ]
    source = plant_partition(tmp_path / "a" / "t-0", segments)
    segments[1].batches.pop(0)
    (source / "00000000000000000003.log").write_bytes(b"".join(segments[1].batches))
    runner = LateRunner()
    split(str(tmp_path / "a"), str(tmp_path / "out"), runner, segment_bytes=100, part_bytes=1)
    merges = [task for tasks, _ in runner.phases for task in tasks if isinstance(task, MergeTask)]
    assert [task.retried for task in merges] == [{2: 1, 3: 1}] * 4
    expected = offline(source, tmp_path / "check" / "t-0", "--set", "internal.segment.bytes=100")
    assert contents(tmp_path / "out" / "t-0") == expected


def test_what_travels_does_not_grow_with_transactions(tmp_path: Path) -> None:
    """Goal: what a driver collects stays below what Spark lets it; it holds one group's at a time.
    Method: the results of a log of a thousand transactions.
    """
    key, value = encode_control_key(ControlRecordType.COMMIT), encode_marker_value(0)
    batches = []
    for offset in range(0, 2_000, 2):
        some = [Record(offset, TIME, b"k%d" % offset, b"v")]
        data = stored_batch(some, attributes=TRANSACTIONAL, producer=Producer(7, 0, offset // 2))
        some = [Record(offset + 1, TIME, key, value)]
        batches += [
            data,
            stored_batch(some, attributes=TRANSACTIONAL | CONTROL, producer=Producer(7, 0)),
        ]
    plant_partition(tmp_path / "a" / "t-0", [MadeSegment(0, TIME, batches)])
    results: list[Any] = []

    class Kept:
        def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
            results.append(InProcess().run(tasks, work, on_done))
            return results[-1]

    split(str(tmp_path / "a"), str(tmp_path / "out"), Kept(), segment_bytes=1 << 30)
    assert len(pickle.dumps(results[0])) < 1_000
    expected = offline(tmp_path / "a" / "t-0", tmp_path / "check" / "t-0")
    assert contents(tmp_path / "out" / "t-0") == expected


def test_room_is_for_the_result_and_a_row_a_key(tmp_path: Path) -> None:
    """Goal: the room that docs/spark-jobs.md promises: what a phase made goes when none reads it.
    Method: the bytes of rows that lie there where each phase begins; keys that all
    differ, and a map that is emptied often.
    """
    source, rows_bytes = tmp_path / "a", []
    plant_partition(source / "t-0", keyed_segments(6, 5, keys=90))

    class Watched:
        def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
            files = (tmp_path / "out.unfinished").glob("*/t-0.split/*")
            rows_bytes.append(sum(each.stat().st_size for each in files if each.is_file()))
            return InProcess().run(tasks, work, on_done)

    split(str(source), str(tmp_path / "out"), Watched(), segment_bytes=SEGMENT_BYTES, map_bytes=100)
    assert contents(tmp_path / "out" / "t-0") == small_groups(source, tmp_path / "check")
    # Beside the rows the end of each file, and two bounds for each of five times that a map of
    # three keys was emptied; of merged rows where each of six groups begins.
    assert dict(zip(PHASES, rows_bytes, strict=True)) == {
        "keys": 0,
        "merge": 90 * ROW_BYTES + 6 * (24 + 5 * 2 * 8),
        "rewrite": 90 * ROW_BYTES + 24 + (6 + 1) * 8,
    }


def test_a_second_try_tells_what_the_first_one_made(tmp_path: Path) -> None:
    """Goal: where two machines make files of other sizes, as with other compression libraries, the
    swap takes what lies there. Method: the facts of the first try, changed behind its back.
    """
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 5))

    class Twice:
        def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
            results = InProcess().run(tasks, work, on_done)
            if work is not rewrite:
                return results
            place = Path(tasks[0].place)
            told = results[0]._replace(stats=CleanerStats(messages_read=1_000))
            (place / OUTCOME_NAME).write_bytes(msgspec.json.encode(told))
            assert work(tasks[0]) == told
            return results

    split(str(tmp_path / "a"), str(tmp_path / "out"), Twice(), segment_bytes=1 << 30)
    expected = offline(tmp_path / "a" / "t-0", tmp_path / "check" / "t-0")
    assert contents(tmp_path / "out" / "t-0") == expected


class Planted:
    """What runs when somebody unpickles it."""

    ran: ClassVar[list[str]] = []

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return self.ran.append, ("planted",)


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(pickle.dumps(Planted()), id="code"),
        pytest.param(b'[[["../up", 1, 2, false]], {}]', id="a name for an offset"),
        pytest.param(b"[[]", id="half of it"),
    ],
)
def test_an_outcome_is_data_of_one_form(tmp_path: Path, planted: bytes) -> None:
    """Goal: who may write beside the target plants no code for the job's user, and nothing that is
    no outcome is swapped in. Method: other bytes where a second try finds the outcome of the first.
    """
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 5))

    class Changed:
        def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
            results = InProcess().run(tasks, work, on_done)
            if work is rewrite:
                (Path(tasks[0].place) / OUTCOME_NAME).write_bytes(planted)
                work(tasks[0])
            return results

    Planted.ran.clear()
    with pytest.raises(CorruptData, match="no outcome of a rewritten group") as caught:
        split(str(tmp_path / "a"), str(tmp_path / "out"), Changed(), segment_bytes=1 << 30)
    assert str(caught.value.file).endswith(OUTCOME_NAME)
    assert not Planted.ran
    assert not (tmp_path / "out").exists()


def test_what_links_lead_to_is_copied(tmp_path: Path) -> None:
    """Goal: a source whose segments are links, as in a store of large files, loses nothing.
    Method: one ``.log`` is moved away and a link put in its place.
    """
    source = tmp_path / "a"
    directory = plant_partition(source / "t-0", keyed_segments(3, 4))
    expected = offline(directory, tmp_path / "check" / "t-0")
    log = directory / "00000000000000000000.log"
    log.rename(tmp_path / "large-file")
    log.symlink_to(tmp_path / "large-file")
    split(str(source), str(tmp_path / "out"), InProcess(), segment_bytes=1 << 30)
    assert contents(tmp_path / "out" / "t-0") == expected


def test_nothing_to_clean_is_no_error(tmp_path: Path) -> None:
    """Goal: a partition without a byte, or with empty segments alone, stays what it is.
    Method: both, beside one that is cleaned.
    """
    source = tmp_path / "a"
    plant_partition(source / "t-0", keyed_segments(2, 3))
    plant_partition(source / "t-1", [MadeSegment(0, TIME), MadeSegment(5, TIME)])
    plant_partition(source / "t-2", [])
    rows = split(str(source), str(tmp_path / "out"), InProcess())
    assert [row.rounds for row in rows] == [1, 0, 0]
    for name in ("t-0", "t-1", "t-2"):
        config = ("--set", "internal.segment.bytes=2000")
        expected = offline(source / name, tmp_path / "check" / name, *config)
        assert contents(tmp_path / "out" / name) == expected
