"""Goal: who searches Kafka's logs for a roll, a deletion or a moved log start finds ours alike.
Method: a manager on the simulated disk; the lines of its life, whole. tests/oracle compares the
words with Kafka's classes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from tests.cleaner_world import DIRECTORY, NOW_MS, CleanerWorld, one, segments_of
from tests.unit.test_retention import bases, fill, put, started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINUTE = 60_000
HOUR = 60 * MINUTE
SEGMENT = "LogSegment(baseOffset={}, size=N, lastModifiedTime=N, largestRecordTimestamp=N)"


def told(lines: Sequence[Mapping[str, object]], beginning: str) -> list[str]:
    """Events that begin so, with times of the clock and sizes of records taken out."""
    events = [str(line["event"]) for line in lines]
    found = [event for event in events if event.startswith(beginning)]
    return [re.sub(r"(Time|Timestamp|size)=-?\d+", r"\1=N", event) for event in found]


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        (
            {"retention.ms": "1800000"},
            f"Deleting segment {SEGMENT.format(0)} due to log retention time 1800000ms breach "
            "based on the largest record timestamp in the segment",
        ),
        (
            {"retention.ms": "-1", "retention.bytes": "0"},
            f"Deleting segment {SEGMENT.format(0)} due to log retention size 0 breach. Log size "
            "after deletion will be 0.",
        ),
    ],
)
def test_why_a_segment_goes(configs: dict[str, str], said: str) -> None:
    sim = started().with_topic("t", 1, configs)
    with capture_logs() as lines:
        fill(sim, 2)
        sim.clock.advance_ms(HOUR)
        sim.manager.retention.retain(sim.operations.partition_log("t", 0))
        sim.threads.run_until_idle()
    assert told(lines, "Deleting segment LogSegment")[0] == said
    assert told(lines, "Incremented log start offset")[-1] == (
        "Incremented log start offset to 2 due to segment deletion"
    )
    rolls = told(lines, "Rolled new log segment")
    assert rolls[0] == "Rolled new log segment at offset 1 in 0 ms."


def test_a_life_of_a_topic() -> None:
    sim = started()
    with capture_logs() as lines:
        sim.operations.topics.create("t", 1, {"retention.ms": "-1"})
        log = sim.operations.partition_log("t", 0)
        path = log.directory
        fill(sim, 2)
        put(sim)
        assert sim.delete_records("t", 2).error is None
        sim.manager.retention.retain(log)
        sim.clock.advance_ms(HOUR)
        sim.threads.run_until_idle()
        assert bases(sim) == [2]
        sim.operations.topics.delete("t")
        doomed = log.directory
        sim.clock.advance_ms(HOUR)
        sim.threads.run_until_idle()
    created = f"Created log for partition t-0 in {path} with properties {{retention.ms=-1}}"
    assert told(lines, "Created log") == [created]
    assert told(lines, "Incremented log start offset") == [
        "Incremented log start offset to 2 due to client delete records request"
    ]
    segments = ",".join(SEGMENT.format(base) for base in (0, 1))
    assert told(lines, "Deleting segments") == [
        f"Deleting segments due to log start offset 2 breach: {segments}"
    ]
    files = ", ".join(SEGMENT.format(base) for base in (0, 1))
    assert told(lines, "Deleting segment files") == [
        f"Deleting segment files {files}",
        f"Deleting segment files {SEGMENT.format(2)}",
    ]
    deletions = [line for line in lines if "Deleting segment files" in str(line["event"])]
    assert [(line["partition"], line["directory"]) for line in deletions] == [
        ("t-0", path),
        ("t-0", doomed),
    ]
    assert told(lines, "Log for partition") == [
        f"Log for partition t-0 is renamed to {doomed} and is scheduled for deletion"
    ]
    assert told(lines, "Deleted log") == [f"Deleted log for partition t-0 in {doomed}."]


def test_an_empty_segment_that_takes_no_entry() -> None:
    """KAFKA-6388: an index of 4 bytes has room for none, so every append asks for a roll."""
    sim = started().with_topic("t", 1, {"segment.index.bytes": "4"})
    with capture_logs() as lines:
        put(sim)
    assert told(lines, "Trying to roll")[0] == (
        "Trying to roll a new log segment with start offset 0=max(provided offset = 0, LEO = 0) "
        "while it already exists and is active with size 0. Size of time index: 0, size of offset "
        "index: 0."
    )
    assert told(lines, "Empty active segment")[0] == (
        "Empty active segment at 0 was deleted and recreated due to log roll"
    )


def test_a_retention_check_names_every_log() -> None:
    sim = started().with_topic("t", 2).with_topic("c", 1, {"cleanup.policy": "compact"})
    with capture_logs() as lines:
        sim.manager.retention.run_once()
    collected = ["Garbage collecting 't-0'", "Garbage collecting 't-1'"]
    assert told(lines, "Beginning log cleanup") == ["Beginning log cleanup..."]
    assert sorted(told(lines, "Garbage")) == collected
    assert {line["log_level"] for line in lines} == {"debug"}


def test_a_clean() -> None:
    """From Kafka's Cleaner, in its order; what each segment lost beside it."""
    first = [one(0, b"k"), one(1, b"gone", None)]
    second = [one(2, b"k"), one(3, b"l")]
    world = CleanerWorld(segments_of(first, second))
    with capture_logs() as lines:
        world.round(now_ms=NOW_MS)
        world.round(now_ms=NOW_MS, dry_run=True)
    horizon = "Tue Nov 14 22:13:20 UTC 2023"
    cleaned = [
        f"Cleaning {SEGMENT.format(base)} in log orders-0 into 0 with an upper bound deletion "
        f"horizon 0 computed from the segment last modified time of {NOW_MS},retaining deletes."
        for base in (0, 2)
    ]
    assert told(lines, "") == [
        "Beginning cleaning of log orders-0",
        "Building offset map for log orders-0 for 2 segments in offset range [0, 4).",
        "Offset map for log orders-0 complete.",
        f"Cleaning log orders-0 (cleaning prior to {horizon}, discarding tombstones prior to upper "
        "bound deletion horizon Thu Jan 01 00:00:00 UTC 1970)...",
        cleaned[0],
        f"Cleaned {SEGMENT.format(0)} in log orders-0",
        cleaned[1],
        f"Cleaned {SEGMENT.format(2)} in log orders-0",
        f"Swapping in cleaned segment {SEGMENT.format(0)} for segment(s) "
        f"[{SEGMENT.format(0)}, {SEGMENT.format(2)}] in log Log(dir={DIRECTORY}, topic=orders, "
        "partition=0, highWatermark=4, lastStableOffset=4, logStartOffset=0, logEndOffset=4)",
    ]
    counts = [line for line in lines if "dropped_tombstones" in line]
    assert [line["dropped_tombstones"] for line in counts] == [0, 0]
    assert [line["kept_batches_with_tombstones_or_markers"] for line in counts] == [1, 0]


def test_many_segments_are_named_in_several_lines() -> None:
    sim = started().with_topic("t", 1, {"retention.ms": "-1"})
    fill(sim, 249)
    put(sim)
    sim.operations.topics.delete("t")
    with capture_logs() as lines:
        sim.clock.advance_ms(HOUR)
        sim.threads.run_until_idle()
    named = [
        re.findall(r"baseOffset=(\d+)", event) for event in told(lines, "Deleting segment files")
    ]
    assert [len(each) for each in named] == [100, 100, 50]
    assert [int(base) for each in named for base in each] == list(range(250))
