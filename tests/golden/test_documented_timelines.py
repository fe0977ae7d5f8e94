"""Goal: the timelines and tables of the pages that explain come out.
Method: each row read from the page and computed by the planners and the cleaner that the daemon
uses; the figures are those of golden/published.md 3, 4, 5 and 7.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog.cleaner.plan import (
    CleaningFacts,
    SegmentFacts,
    SegmentSizes,
    group_segments,
    plan_cleaning,
)
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import plan as retention_plan
from kafkalog.log.retention.forecast import Schedule, explain, simulate
from kafkalog.log.retention.plan import LogFacts, RetentionPolicy, plan
from tests.cleaner_world import NOW_MS
from tests.golden.test_compaction import LEFT, published_log, stored

DOCS = Path(__file__).resolve().parents[2] / "docs"
MINUTE = 60_000
INTERVAL_MS, DELAY_MS, RETENTION = 5 * MINUTE, MINUTE, RetentionPolicy(True, 10 * MINUTE, -1)
GB = 1_000_000_000


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading of a page, without its head."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None, heading
    table = [line.strip("|").split("|") for line in lines[0].splitlines()]
    return [[cell.strip() for cell in row] for row in table[2:]]


def number(text: str) -> int:
    """With or without commas; what follows it is for the reader."""
    found = re.match(r"[0-9,]+", text)
    assert found is not None, text
    return int(found[0].replace(",", ""))


def clock_text(moment_ms: int) -> str:
    """As the page writes it."""
    text = f"{moment_ms // MINUTE}:{moment_ms // 1000 % 60:02}"
    return text + (f".{moment_ms % 1000:03}" if moment_ms % 1000 else "")


# ---- explanation/retention.md


def filled_segment() -> LogFacts:
    """109 records, one each five seconds from 0 on; the next ones are in the active segment."""
    closed = retention_plan.SegmentFacts(0, 16_314, 108 * 5_000)
    active = retention_plan.SegmentFacts(109, 150, 25 * MINUTE)
    return LogFacts((closed, active), 16_464, 0, 110, 110)


def test_the_timeline_of_retention() -> None:
    """M09: Every moment."""
    table = rows("explanation/retention.md", "A timeline")
    moments = [number(row[1]) for row in table]
    assert [row[0] for row in table] == [clock_text(each) for each in moments]
    facts = filled_segment()
    last, roll = facts.segments[0].largest_timestamp_ms, 109 * 5_000
    due = explain(facts, RETENTION, roll, Schedule(9 * MINUTE, INTERVAL_MS, DELAY_MS))
    first = due[0].due
    assert first is not None
    assert first.expected_ms is not None
    exact = last + RETENTION.retention_ms
    assert moments == [
        0,
        last,
        roll,
        RETENTION.retention_ms,
        exact,
        first.moment_ms,
        first.expected_ms,
        first.files_gone_ms,
    ]
    assert [len(plan(facts, RETENTION, moment).deletions) for moment in moments[3:7]] == [
        0,
        0,
        1,
        1,
    ]
    assert plan(facts, RETENTION, moments[6]).log_start_offset == 109


def test_the_luckiest_checks() -> None:
    """M09: "from 19:00 on"."""
    facts = filled_segment()
    roll = 109 * 5_000
    taken = []
    for phase_ms in range(0, INTERVAL_MS, 1000):
        schedule = Schedule(roll + phase_ms, INTERVAL_MS, DELAY_MS)
        taken.append(next(iter(simulate(facts, RETENTION, roll, 60 * MINUTE, schedule))).check_ms)
    assert (min(taken), max(taken)) == (19 * MINUTE + 1000, 24 * MINUTE)


@pytest.mark.parametrize("row", rows("explanation/retention.md", "By size"), ids=lambda r: r[0])
def test_the_table_of_sizes(row: list[str]) -> None:
    """M09: How many segments each limit takes."""
    sizes = [700_000_000] * 3 + [1_234]
    assert sum(sizes) == 2_100_001_234
    segments = tuple(
        retention_plan.SegmentFacts(place * 10, size, 0) for place, size in enumerate(sizes)
    )
    facts = LogFacts(segments, sum(sizes), 0, 40, 40)
    planned = plan(facts, RetentionPolicy(True, -1, number(row[0])), 0)
    assert len(planned.deletions) == number(row[1])


@pytest.mark.parametrize(
    "row", rows("explanation/retention.md", "By log start"), ids=lambda r: r[0]
)
def test_the_table_of_log_starts(row: list[str]) -> None:
    """M10: How many segments each log start takes."""
    bases = (0, 10_000, 20_000, 30_000, 40_000)
    segments = tuple(retention_plan.SegmentFacts(base, 1, 0) for base in bases)
    facts = LogFacts(segments, len(segments), number(row[0]), 43_211, 43_211)
    planned = plan(facts, RetentionPolicy(True, -1, -1), 0)
    assert len(planned.deletions) == number(row[1])


# ---- explanation/compaction.md


@pytest.mark.parametrize(
    "row", rows("explanation/compaction.md", "The dirty ratio"), ids=lambda r: r[0]
)
def test_the_table_of_ratios(row: list[str]) -> None:
    """M17: Which logs are cleaned."""
    clean, cleanable, ratio = number(row[0]), number(row[1]), float(row[2])
    segments = (
        SegmentFacts(0, clean, 0, 0),
        SegmentFacts(10, cleanable, 0, 0),
        SegmentFacts(20, 10_000),
    )
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    planned = plan_cleaning(CleaningFacts(segments, 10, 25), config, 1_000)
    assert planned.cleanable_ratio == ratio
    assert planned.is_eligible == row[3].startswith("yes")


def test_the_table_of_a_round() -> None:
    """M17 M20: What is left of the six records."""
    table = rows("explanation/compaction.md", "A round")
    world = published_log()
    written = [
        (number(row[0]), row[1].encode(), None if row[2] == "null" else row[2].encode())
        for row in table
    ]
    assert stored(world) == written
    world.round()
    kept = [record for record, row in zip(written, table, strict=True) if row[3].startswith("kept")]
    assert stored(world) == kept == LEFT


@pytest.mark.parametrize(
    "row", rows("explanation/compaction.md", "Tombstones and their horizon")[1:], ids=lambda r: r[1]
)
def test_the_timeline_of_a_tombstone(row: list[str]) -> None:
    """M20 M21: Kept and dropped to the millisecond."""
    world = published_log()
    world.log.update_config(replace(world.config, delete_retention_ms=86_400_000))
    world.round()
    world.log.high_watermark = 7
    world.round(6, NOW_MS + number(row[1]))
    is_there = any(value is None for _, _, value in stored(world))
    assert is_there == row[2].startswith("keeps")


def test_the_table_of_maps() -> None:
    """M18: Keys by memory."""
    memory = 134_217_728
    table = rows("explanation/compaction.md", "How much a round takes")
    for threads, row in enumerate(table, 1):
        assert SkimpyOffsetMap(memory // threads, 0.9).capacity == number(row[1])


def test_the_groups() -> None:
    """M17: The four groups that the page names."""
    text = (DOCS / "explanation/compaction.md").read_text(encoding="utf-8")
    shown = [group.split() for group in re.findall(r"\[([0-9. ]+)\]", text)]
    tenths = (4, 4, 3, 7, 3, 10)
    sizes = [SegmentSizes(place * 10, each * GB // 10, 0, 0) for place, each in enumerate(tenths)]
    groups = group_segments(sizes, GB, 10 << 20, 60)
    assert [[str(tenths[each] / 10) for each in group] for group in groups] == shown
