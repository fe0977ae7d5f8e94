"""Goal: the job whatif says what retention and the cleaner then do, and changes nothing.
Method: forecasts of directories on the machine's disk beside a pass and a round that really run.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.clock import FixedWallClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.tasks import InProcess, ProcessPool
from kafkalog.jobs.whatif import forecast
from kafkalog.log.inspect.directory_facts import directory_facts
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
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


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


def asked(*words: str | Path) -> Any:
    words = ("spark", "whatif", *words, "--output", "json")
    result = CliRunner().invoke(make_cli(), [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_facts_of_a_directory_are_those_of_its_log(tmp_path: Path) -> None:
    """The planner is told what it would be told of the open log."""
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
    """A fleet is judged by its registries."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(4, 5))
    own = replace(COMPACT, cleanup_policy=frozenset({"delete"}), retention_ms=1)
    partitions = find_partitions(
        [str(tmp_path / "a")], SystemFilesystem(), config_of=lambda _, topic: own
    )
    (row,) = forecast(partitions, InProcess(), now_ms=TIME + 100_000, horizon_ms=0)
    assert (row.due_segments, row.bytes_left) == (4, 0)


@pytest.mark.slow
def test_compaction_is_forecast_as_it_happens(tmp_path: Path) -> None:
    """Goal: the bytes that the cleaner leaves, without a change, also in a pool.
    Method: logs with every kind of batch; the job compact beside it.
    """
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
    partitions = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    rows = forecast(
        partitions,
        ProcessPool(2),
        now_ms=TIME + 1_000_000,
        horizon_ms=0,
        with_compaction=True,
        map_bytes=100_000,
    )
    assert [row._asdict() for row in rows] == answer["rows"]


def test_damage_is_a_problem_of_its_partition(tmp_path: Path) -> None:
    """A batch that stops the cleaner is told, and the fleet's other figures are there."""
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
