"""Goal: an operator sees how many segments a recovery still has to scan, and 0 when it ended.
Method: the notes of a load, sound and refused; gauge and log lines of a manager after an unclean
start on a slow simulated disk.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import Acks
from kafkalog.errors import CorruptBatch
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from tests.partition_world import DIRECTORY, PartitionWorld, batch
from tests.sim.sim_manager import SimManager, batch_of

GAUGE = "kafkalog_recovery_remaining_segments"


def left_by_a_kill() -> PartitionWorld:
    world = PartitionWorld(LogConfig(segment_index_bytes=96))
    for _ in range(4):
        world.append(batch([b"a"]))
        world.log.roll()
    world.log.close_handles()
    return world


def test_each_segment_counts_down() -> None:
    """M16: from all to none."""
    world = left_by_a_kill()
    files = [f"{DIRECTORY}/{number:020d}.log" for number in range(5)]
    sizes = [world.filesystem.stat(file).size for file in files]
    assert len({*sizes[:4]}) == 1 < len({*sizes}), "the active segment is empty"
    notes: list[tuple[int, int]] = []
    environment = replace(world.environment(), note_recovery=lambda *note: notes.append(note))
    load_log(DIRECTORY, world.config, environment, clean=False)
    segments, size_bytes = zip(*notes, strict=True)
    assert [left for left in accumulate(segments) if left] == [5, 4, 3, 2, 1]
    assert [*accumulate(size_bytes)][:5] == [sizes[0] * left for left in (4, 3, 2, 1, 0)]
    assert (sum(segments), sum(size_bytes)) == (0, 0)


def test_a_load_that_fails_leaves_nothing_behind() -> None:
    """M16: a partition that is out of service is not "recovering" for ever."""
    world = left_by_a_kill()
    legacy = world.filesystem.open_write(f"{DIRECTORY}/{2:020d}.log")
    legacy.pwrite(b"\x01", 16)
    notes: list[tuple[int, int]] = []
    environment = replace(world.environment(), note_recovery=lambda *note: notes.append(note))
    with pytest.raises(CorruptBatch):
        load_log(DIRECTORY, world.config, environment, clean=False)
    assert notes[0][0] == 5
    assert [sum(column) for column in zip(*notes, strict=True)] == [0, 0]


def test_the_gauge_of_a_directory() -> None:
    """M16: 0 once the daemon serves."""
    sim = SimManager(topic_defaults=LogConfig(segment_index_bytes=96)).start()
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("a"))
    home = sim.operations.partition_log("t", 0).directory.rpartition("/")[0]
    again = SimManager(sim.kill()).start()
    assert again.metrics.registry.get_sample_value(GAUGE, {"log_dir": home}) == 0


def test_a_long_recovery_is_told() -> None:
    """M16: Kafka's sentences; between the first and the last one line in ten seconds."""
    config = BrokerConfig(log_dirs=("/data/a",), num_recovery_threads_per_data_dir=1)
    defaults = LogConfig(segment_index_bytes=96, internal_segment_bytes=200)
    sim = SimManager(config=config, topic_defaults=defaults).start()
    sim.operations.topics.create("t", 10)
    for partition in range(10):
        for _ in range(5):
            sim.produce("t", batch_of("a"), Acks.LEADER, partition=partition)
    again = SimManager(sim.kill(), config=config, topic_defaults=defaults)
    again.disk.on_call = lambda: again.clock.sleep(0.1)
    with capture_logs() as captured:
        again.start()
    again.disk.on_call = None
    events = [line["event"] for line in captured]
    first, *between, last, cleanup, flusher, cleaner = events
    assert cleanup == "Starting log cleanup with a period of 300000 ms."
    assert flusher.startswith("Starting log flusher with a default period of ")
    assert cleaner == "Starting the log cleaner"
    assert first == "Recovering 10 logs from /data/a since no clean shutdown file was found"
    took = re.fullmatch(r"Loaded 10 logs in (\d+)ms", last)
    assert took is not None
    periods = int(took[1]) // 10_000
    assert periods > 3
    assert periods // 2 <= len(between) <= periods
    log = r"Completed load of t-\d with \d segments, local-log-start-offset 0 and log-end-offset 5 "
    log += r"in \d+ms \(\d+/10 completed in /data/a\)"
    segment = r"Recovering unflushed segments\. \d+ left \(\d+/10 logs completed in /data/a\)"
    assert all(re.fullmatch(f"{log}|{segment}", event) for event in between), between


def test_nothing_is_told_once_loaded() -> None:
    """M16: a topic that is made later is no recovery."""
    sim = SimManager().start()
    sim.clock.advance_ms(12_000)
    with capture_logs() as lines:
        sim.operations.topics.create("t", 1)
    assert [line["event"] for line in lines if "ecover" in line["event"]] == []
