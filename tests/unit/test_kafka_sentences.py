"""Goal: who searches Kafka's logs for a roll, a deletion or a moved log start finds ours alike.
Method: a manager on the simulated disk; the lines of its life, whole. tests/oracle compares the
words with Kafka's classes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

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
    return [re.sub(r"(Time|Timestamp|size)=\d+", r"\1=N", event) for event in found]


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
    files = "LogSegment(baseOffset=0, size=N),LogSegment(baseOffset=1, size=N)"
    assert told(lines, "Deleting segment files") == [
        f"Deleting segment files {files}",
        "Deleting segment files LogSegment(baseOffset=2, size=N)",
    ]
    assert told(lines, "Log for partition") == [
        f"Log for partition t-0 is renamed to {doomed} and is scheduled for deletion"
    ]
    assert told(lines, "Deleted log") == [f"Deleted log for partition t-0 in {doomed}."]


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
