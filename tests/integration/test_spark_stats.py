"""Goal: stats counts what is there and how far its estimates may be off; whatif says what retention
and the cleaner then do, and changes nothing.
Method: logs beside plain counts, forecasts beside a pass and a round that really run.
"""

from __future__ import annotations

import base64
import gc
import json
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.clock import FixedWallClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs import stats
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.stats import (
    KEYS_MAX,
    SAMPLE_MAX,
    TIMES_MAX,
    Counts,
    KeySketch,
    count_piece,
    count_records,
    key_rows,
    partition_rows,
    size_rows,
    time_rows,
)
from kafkalog.jobs.tasks import InProcess
from kafkalog.jobs.whatif import forecast
from kafkalog.log.inspect.directory_facts import directory_facts
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.values import Access, OffsetRange
from tests.fleet_world import (
    COMPACT,
    contents,
    copy_of,
    flip_record,
    kept_logging,
    keyed_segments,
    plant_mixed,
    plant_partition,
)
from tests.naive.cleaning_logs import TIME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.jobs.stats import Stats


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(make_cli(), [str(word) for word in words])


def scanned(directory: Path) -> list[dict[str, Any]]:
    """The data records as offline scan prints them, bytes decoded."""
    found = [json.loads(line) for line in run("offline", "scan", directory).stdout.splitlines()]
    for each in found:
        for name in ("key", "value"):
            each[name] = None if each[name] is None else base64.b64decode(each[name])
    return found


def counted(log_dir: Path, *, target_bytes: int = 1 << 30) -> Stats:
    partitions = find_partitions([str(log_dir)], SystemFilesystem())
    return count_records(partitions, InProcess(), width_ms=60_000, target_bytes=target_bytes)


def weight(record: dict[str, Any]) -> int:
    return len(record["key"] or b"") + len(record["value"] or b"")


def test_every_kind_of_record_is_counted(tmp_path: Path) -> None:
    """Goal: counts, bytes, nulls, keys, sizes and times are those of the records.
    Method: six logs with every kind of batch, in one piece and in many.
    """
    plant_mixed(tmp_path / "a", "orders", 6)
    partitions = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    records = {each.partition: scanned(tmp_path / "a" / each.name) for each in partitions}
    whole = counted(tmp_path / "a")
    for row in partition_rows(whole):
        own = records[row.partition]
        keyed = [each for each in own if each["key"] is not None]
        last = {each["key"]: each for each in keyed}
        assert row.records == len(own)
        assert row.key_bytes == sum(len(each["key"]) for each in keyed)
        assert row.value_bytes == sum(len(each["value"] or b"") for each in own)
        assert row.null_keys == len(own) - len(keyed)
        assert row.null_values == sum(each["value"] is None for each in own)
        assert row.tombstones == sum(each["value"] is None for each in keyed)
        assert (row.distinct_keys, row.keys_are_exact) == (len(last), True)
        assert row.latest_bytes == sum(map(weight, last.values()))
        assert row.offsets_missing == 0
    all_records = [each for own in records.values() for each in own]
    lengths = [len(each["value"]) for each in all_records if each["value"] is not None]
    sizes = size_rows(whole)
    assert sum(row.records for row in sizes) == len(lengths)
    for each in sizes:
        inside = [length for length in lengths if each.from_bytes <= length <= each.to_bytes]
        assert (each.records, each.bytes) == (len(inside), sum(inside))
    spans: Counter[int] = Counter()
    for record in all_records:
        if record["timestamp"] >= 0:
            spans[record["timestamp"] // 60_000 * 60_000] += 1
    assert {row.start_ms: row.records for row in time_rows(whole)} == spans
    heavy: Counter[str] = Counter()
    for record in all_records:
        if record["key"] is not None:
            heavy[record["key"].decode("utf-8", "backslashreplace")] += weight(record)
    assert {row.key: row.bytes for row in key_rows(whole, KEYS_MAX)} == heavy
    pieces = counted(tmp_path / "a", target_bytes=500)
    assert partition_rows(pieces) == partition_rows(whole)
    assert key_rows(pieces, 5) == key_rows(whole, 5)
    assert (size_rows(pieces), time_rows(pieces)) == (sizes, time_rows(whole))


class Memory(InProcess):
    """Notes how many results are in memory when a task has ended."""

    most = 0

    def stream(self, *given: Any, **options: Any) -> Any:
        gc.collect()  # what other tests left
        for ended in super().stream(*given, **options):
            results = sum(isinstance(each, Counts) for each in gc.get_objects())
            self.most = max(self.most, results)
            yield ended


def test_memory_does_not_grow_with_the_tasks(tmp_path: Path) -> None:
    """Goal: the driver holds sums, not the results of all tasks.
    Method: counts that are alive, of two numbers of tasks.
    """
    most = []
    for segments in (4, 16):
        log_dir = tmp_path / str(segments)
        plant_partition(log_dir / "t-0", keyed_segments(segments, 2))
        partitions = find_partitions([str(log_dir)], SystemFilesystem())
        runner = Memory()
        found = count_records(partitions, runner, width_ms=60_000, target_bytes=1)
        assert [row.records for row in partition_rows(found)] == [segments * 6]
        most.append(runner.most)
        del found
    assert most[0] == most[1] <= 4


def records_of(keys: list[int], first: int = 0) -> tuple[pa.Array, pa.Array, pa.Array]:
    names = pa.array([b"key %d" % each for each in keys], pa.binary())
    sizes = pa.array([100 + each % 7 for each in keys], pa.int64())
    return names, sizes, pa.array(range(first, first + len(keys)), pa.int64())


def test_many_keys_are_estimated_within_the_bound() -> None:
    chance = random.Random(3)
    keys = [each for each in range(60_000) for _ in range(20 if each < 50 else 1)]
    chance.shuffle(keys)
    sketches = [KeySketch(), KeySketch()]
    for first in range(0, len(keys), 10_000):
        sketches[first // 10_000 % 2].add(*records_of(keys[first : first + 10_000], first))
    for each in sketches:
        each.prune()
    merged = KeySketch()
    for each in sketches:
        merged.merge(each)
    exact: Counter[bytes] = Counter()
    for key in keys:
        exact[b"key %d" % key] += 100 + key % 7
    heavy = merged.heaviest(50)
    assert {each.key for each in heavy} == {b"key %d" % key for key in range(50)}
    for found in heavy:
        assert found.bytes <= exact[found.key] <= found.bytes + merged.missed_bytes
    assert 0 < merged.missed_bytes < 1_000
    assert not merged.is_exact
    assert abs(merged.distinct_keys - 60_000) < 60_000 * 0.06
    assert abs(merged.last_bytes - 60_000 * 103) < 60_000 * 103 * 0.06
    assert len(merged._sample) == SAMPLE_MAX
    assert len(merged._heavy) == KEYS_MAX


def test_hashes_do_not_depend_on_where_an_array_begins() -> None:
    keys = pa.array([b"", b"a", b"bc", b"", b"def"], pa.binary())
    hashes = stats.hashes_of(keys).tolist()
    assert stats.hashes_of(keys.slice(2, 2)).tolist() == hashes[2:4]
    assert stats.hashes_of(keys.slice(0, 0)).tolist() == []
    assert hashes[0] == hashes[3]
    assert stats.hashes_of(pa.array([b""], pa.binary())).tolist() == hashes[:1]


def test_spans_become_wider_when_there_are_too_many() -> None:
    wide, narrow = Counts(1), Counts(1)
    count = TIMES_MAX + 10
    wide._add_times(pa.array(range(count)).to_numpy() * 1_000, pa.array([2] * count).to_numpy())
    assert wide.width_ms == 2
    assert sum(records for records, _ in wide.times.values()) == count
    narrow._add_times(pa.array([5_000, -1_000]).to_numpy(), pa.array([7, 7]).to_numpy())
    narrow.merge(wide)
    assert narrow.width_ms == 2
    assert narrow.times[2] == (3, 11)


def test_what_goes_while_it_is_read_is_missing(tmp_path: Path) -> None:
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    access = Access(paths=(str(tmp_path / "a"),))
    (piece,) = open_logs(access).pieces(OffsetRange("t", 0, 0, 36), 1 << 30)
    for path in directory.glob("00000000000000000000.*"):
        path.unlink()
    counts = count_piece(piece, 60_000)
    assert (counts.records, counts.offsets_missing) == (24, 12)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    """Rows by partition, key, size and time; damage names its task."""
    for partition in range(2):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(2, 4))
    words = ("spark", "stats", "--dirs", tmp_path / "a", "--output", "json")
    by = {name: json.loads(run(*words, "--by", name).stdout) for name in ("key", "size", "time")}
    rows = json.loads(run(*words).stdout)["rows"]
    assert [row["records"] for row in rows] == [24, 24]
    assert by["key"]["totals"]["records"] == 48
    assert len(by["key"]["rows"]) == 7
    sizes = [(row["from_bytes"], row["to_bytes"], row["records"]) for row in by["size"]["rows"]]
    assert sizes == [(4, 7, 20), (8, 15, 28)]  # "value 9", "value 10"
    assert by["time"]["rows"][0]["start_ms"] == TIME // 3_600_000 * 3_600_000
    flip_record(tmp_path / "a" / "t-1")
    damaged = run(*words)
    assert damaged.exit_code == 1
    assert "t-1 [0, " in damaged.output


def asked(*words: str | Path) -> Any:
    words = ("spark", "whatif", *words, "--output", "json")
    result = CliRunner().invoke(make_cli(), [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_facts_of_a_directory_are_those_of_its_log(tmp_path: Path) -> None:
    plant_mixed(tmp_path / "a", "orders", 8)
    plant_partition(tmp_path / "a" / "plain-0", keyed_segments(4, 5))
    for path in sorted((tmp_path / "a").iterdir()):
        loaded = copy_of(path, tmp_path / "copies" / path.name)
        log = load_log(str(loaded), COMPACT, tool_environment(FixedWallClock(TIME)), clean=True)
        expected = execute.read_all(execute.facts_of(log))
        log.close()
        filesystem = SystemFilesystem()
        facts = directory_facts(str(path), filesystem, 0, None)
        assert facts == expected._replace(high_watermark=expected.log_end_offset)
        for index in (*path.glob("*.index"), *path.glob("*.timeindex")):
            index.unlink()
        assert directory_facts(str(path), filesystem, 0, None) == facts
    last = sorted((tmp_path / "a" / "plain-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-7])
    facts = directory_facts(str(last.parent), SystemFilesystem(), 5, 10**9)
    assert facts is not None
    assert (facts.log_start_offset, facts.log_end_offset, facts.high_watermark) == (5, 57, 57)
    assert directory_facts(str(tmp_path), SystemFilesystem(), 0, None) is None


def test_retention_is_forecast_as_it_happens(tmp_path: Path) -> None:
    """What is due now, and what leaves within the horizon, by the configs that are asked."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(4, 5))
    size = {path.name: path.stat().st_size for path in (tmp_path / "a" / "t-0").glob("*.log")}
    sizes = [size[name] for name in sorted(size)]
    before = contents(tmp_path)
    now_ms = TIME + 100_000  # the segments end 86, 71, 56 and 41 s before
    words = ("--dirs", tmp_path / "a", "--now", str(now_ms), "--config", "retention.ms=80000")
    (row,) = asked(*words)["rows"]
    assert (row["segments"], row["bytes"]) == (4, sum(sizes))
    assert (row["due_segments"], row["due_bytes"]) == (1, sizes[0])
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 60)
    assert row["newest_ms"] == TIME + 59_000
    assert (row["compacted_bytes"], row["problem"]) == (None, None)
    (row,) = asked(*words, "--horizon", "1h")["rows"]
    assert (row["due_segments"], row["leaving_segments"], row["bytes_left"]) == (1, 4, 0)
    (row,) = asked(*words[:4], "--config", f"retention.bytes={sizes[-1] + 1}")["rows"]
    assert row["due_segments"] == 2
    (row,) = asked(*words[:4], "--config", "cleanup.policy=compact")["rows"]
    assert row["leaving_segments"] == 0
    assert contents(tmp_path) == before


def test_a_topics_own_configs_hold_unless_others_are_asked(tmp_path: Path) -> None:
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(4, 5))
    own = replace(COMPACT, cleanup_policy=frozenset({"delete"}), retention_ms=1)
    partitions = find_partitions(
        [str(tmp_path / "a")], SystemFilesystem(), config_of=lambda _, topic: own
    )
    (row,) = forecast(partitions, InProcess(), now_ms=TIME + 100_000, horizon_ms=0)
    assert (row.due_segments, row.bytes_left) == (4, 0)


@pytest.mark.slow
def test_compaction_is_forecast_as_it_happens(tmp_path: Path) -> None:
    """The bytes that the cleaner leaves, without a change."""
    plant_mixed(tmp_path / "a", "orders", 6)
    before = contents(tmp_path)
    now = ("--now", str(TIME + 1_000_000))
    answer = asked("--dirs", tmp_path / "a", *now, "--compaction")
    assert contents(tmp_path) == before
    words = ("spark", "compact", "--dirs", tmp_path / "a", "--out", tmp_path / "out", *now)
    result = CliRunner().invoke(make_cli(), [*map(str, words), "--output", "json"])
    made = json.loads(result.stdout)
    assert [row["problem"] for row in answer["rows"]] == [None] * 6
    removed = [row["records_removed"] for row in answer["rows"]]
    assert removed == [row["records_removed"] for row in made["rows"]]
    left = [row["compacted_bytes"] for row in answer["rows"]]
    assert left == [row["bytes_after"] for row in made["rows"]]
    assert answer["totals"]["compacted_bytes"] == made["totals"]["bytes_after"]


def test_damage_is_a_problem_of_its_partition(tmp_path: Path) -> None:
    for partition in range(4):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(3, 4))
    log = flip_record(tmp_path / "a" / "t-1")
    tail = tmp_path / "a" / "t-2" / "00000000000000000024.log"
    tail.write_bytes(tail.read_bytes()[:-7])
    gone = tmp_path / "a" / "t-3" / "00000000000000000012.log"
    gone.unlink()
    before = contents(tmp_path)
    answer = asked("--dirs", tmp_path / "a", "--now", str(TIME), "--compaction")
    assert contents(tmp_path) == before
    sound, flipped, torn, lost = answer["rows"]
    assert sound["problem"] is None
    assert f"({log} at 0)" in flipped["problem"]
    assert torn["problem"]
    assert f"Offsets from 12 to 23 are missing ({gone} at 0)" in lost["problem"]
    assert flipped["compacted_bytes"] is None
    assert answer["totals"]["problems"] == 3
