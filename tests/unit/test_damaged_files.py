"""Goal: a damaged small file costs what it must, and the log or the refusal says what to do.
Method: bytes of the simulated disk changed between two lives of a manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.log.log_config import LogConfig
from kafkalog.manager.broker_config import BrokerConfig
from kafkalog.manager.log_dir import LOG_START_OFFSETS, RECOVERY_POINTS
from kafkalog.manager.values import Acks
from tests.sim.sim_manager import SimManager, batch_of

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem

ONE = BrokerConfig(log_dirs=("/data/a",))
SMALL = LogConfig(segment_index_bytes=96)


def three_topics(*, clean: bool) -> SimFilesystem:
    """Topics a, b and c of one partition with four records; the start of each moved to 2."""
    sim = SimManager(config=ONE, topic_defaults=SMALL).start()
    for topic in "abc":
        sim.operations.create_topic(topic, 1)
        for _ in range(4):
            sim.produce(topic, batch_of("v"), Acks.ALL)
        assert sim.delete_records(topic, 2).error is None
    sim.manager.checkpoints.write_all(sim.manager.units[0].log_dir)
    return sim.stop() if clean else sim.kill()


def write(disk: SimFilesystem, path: str, data: bytes) -> None:
    """Other content."""
    disk.write_file_atomically(path, data)


def starts(sim: SimManager) -> dict[str, int]:
    """Log start by topic."""
    return {t: sim.operations.partition_log(t, 0).log_start_offset for t in "abc"}


def restarted(disk: SimFilesystem) -> tuple[SimManager, list[Any]]:
    """The next life and its log lines of level error."""
    with capture_logs() as captured:
        sim = SimManager(disk, config=ONE, topic_defaults=SMALL).start()
    return sim, [line for line in captured if line["log_level"] == "error"]


@pytest.mark.parametrize(
    ("content", "number", "text", "lost"),
    [
        (b"0\n3\na 0 2\nb 0 x\nc 0 2\n", 4, "b 0 x", "b"),
        (b"0\n3\na 0 2\nb 0\nc 0 2\n", 4, "b 0", "b"),
        (b"0\n3\na 0 2\n\xff\xfe 0 2\nc 0 2\n", 4, "\\xff\\xfe 0 2", "b"),
        (b"0\n3\na 0 2\nb 0 2\nc 0 2", None, None, ""),
        (b"0\n3\na 0 2\nb 0 2\nc 0 ", 5, "c 0 ", "c"),
        (b"x\n3\na 0 2\nb 0 2\nc 0 2\n", 1, "x", ""),
        (b"0\n7\na 0 2\nb 0 2\nc 0 2\n", 2, "7", ""),
        (b"1\n3\na 0 2\nb 0 2\nc 0 2\n", 1, "1", "abc"),
    ],
)
def test_a_bad_line_of_the_start_offsets_costs_its_partition_alone(
    content: bytes, number: int | None, text: str | None, lost: str
) -> None:
    """M08: Kafka gives up the whole directory, or all entries; deleted records came back."""
    disk = three_topics(clean=True)
    path = f"/data/a/{LOG_START_OFFSETS}"
    write(disk, path, content)
    sim, errors = restarted(disk)
    assert starts(sim) == {topic: 0 if topic in lost else 2 for topic in "abc"}
    assert sim.operations.readiness().offline_dirs == 0
    if number is None:
        assert errors == []
        return
    line = next(each for each in errors if each["line"] == number)
    assert (line["event"], line["file"], line["text"]) == ("checkpoint_damaged", path, text)
    assert "first segment" in line["consequence"]
    assert all(each["file"] == path for each in errors)


def test_a_bad_line_of_the_recovery_points_costs_its_partition_alone() -> None:
    """M08: it is recovered from its first segment, the others from where they were durable."""
    disk = three_topics(clean=False)
    path = f"/data/a/{RECOVERY_POINTS}"
    assert disk.read_file(path) == b"0\n3\na 0 4\nb 0 4\nc 0 4\n"
    write(disk, path, b"0\n3\na 0 4\nb O 4\nc 0 4\n")
    with capture_logs():
        log_dir = SimManager(disk.kill(), config=ONE).manager.units[0].log_dir
        found = log_dir.read_checkpoint(RECOVERY_POINTS)
    assert sorted((each.topic, offset) for each, offset in found.items()) == [("a", 4), ("c", 4)]
    sim, errors = restarted(disk)
    assert [(each["file"], each["line"], each["text"]) for each in errors] == [(path, 4, "b O 4")]
    assert all(sim.operations.partition_log(topic, 0).log_end_offset == 4 for topic in "abc")
