"""Goal: what Kafka 4.1.0 did in the worked examples of log-lifecycle 16 is what a log here does.
Method: the same appends and the same passes, one after the other, on one log; sparse files of the
published sizes on the real file system. The table in tests/README.md says where each example is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import InvalidTimestamp, OffsetAboveHighWatermark
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.retention import execute
from kafkalog.log.values import Isolation
from tests.golden.test_retention import MB, SIZE_LIMITS
from tests.log_world import environment_of
from tests.naive.batches import one_record
from tests.partition_world import NOW_MS, PartitionWorld, batch, checked
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog

CONFIG = LogConfig(
    internal_segment_bytes=700,
    retention_bytes=1400,
    index_interval_bytes=150,
    segment_index_bytes=96,
)


def batch_of_size(size: int) -> bytes:
    """One record in so many bytes."""
    value = bytes(size - len(batch([b""])))
    while len(data := batch([value])) > size:
        value = value[:-1]
    assert len(data) == size
    return data


def run_pass(world: PartitionWorld) -> int:
    """A pass at once; how many segments went."""
    planned = execute.plan_of(world.log, NOW_MS)
    if not planned.deletions:
        return 0
    base = execute.begin(world.log, planned)
    world.flush()
    execute.raise_start(world.log, NOW_MS, base)
    return len(execute.finish(world.log))


def state(world: PartitionWorld) -> tuple[dict[int, int], int]:
    """Sizes by base offset, and the log start."""
    sizes = {segment.base_offset: segment.size_bytes for segment in world.log.segments}
    return sizes, world.log.log_start_offset


def test_size_then_start_offset() -> None:
    """M09 M10 M12: 20 batches of 171 bytes: segments, two passes, delete-records, the files."""
    world = PartitionWorld(CONFIG)
    for _ in range(20):
        world.append(batch_of_size(171))
    world.log.update_high_watermark(20)
    assert state(world) == ({0: 684, 4: 684, 8: 684, 12: 684, 16: 684}, 0)
    assert run_pass(world) == 2
    assert state(world) == ({8: 684, 12: 684, 16: 684}, 8)
    assert world.log.size_bytes == 2052
    assert run_pass(world) == 0
    files = {f"{base:020d}.{kind}.deleted" for base in (0, 4) for kind in ("log", "timeindex")}
    files |= {f"{base:020d}.index.deleted" for base in (0, 4)}
    files.add(f"{4:020d}.snapshot.deleted")  # base 0 has none
    assert {name for name in world.names() if name.endswith(".deleted")} == files
    for base in (8, 12):
        assert world.filesystem.stat(f"{world.log.directory}/{base:020d}.index").size == 24
        assert world.filesystem.stat(f"{world.log.directory}/{base:020d}.snapshot").size == 10
    entries = [entry.offset for entry in world.log.segments.first.offset_index.entries()]
    assert entries == [9, 10, 11], "never the first batch"

    world.log.update_config(LogConfig(internal_segment_bytes=700))
    assert world.log.delete_records(13) == 13
    assert run_pass(world) == 1
    assert state(world) == ({12: 684, 16: 684}, 13)
    assert world.log.delete_records(20) == 20
    assert run_pass(world) == 1
    assert state(world) == ({16: 684}, 20), "the active segment stays"
    with pytest.raises(OffsetAboveHighWatermark):
        world.log.delete_records(21)


def test_timestamps() -> None:
    """M11: no timestamp, one too far ahead, an empty log."""
    world = PartitionWorld()

    def ask(timestamp_ms: int) -> tuple[int, int] | None:
        found = world.log.offset_for_timestamp(timestamp_ms, Isolation.HIGH_WATERMARK)
        return None if found is None else (found.timestamp_ms, found.offset)

    assert (ask(-3), ask(-1)) == (None, (-1, 0))
    world.append(batch([b"v"], timestamps=-1))
    assert (ask(-3), ask(0)) == ((-1, 0), None)
    with pytest.raises(InvalidTimestamp):
        checked(batch([b"v"], timestamps=NOW_MS + 3_700_000))


@SIZE_LIMITS
def test_segments_of_700_megabytes(tmp_path: Path, limit: int, count: int) -> None:
    """M09 M12: published.md 4 on files of these sizes, which hold no blocks."""
    log = sparse_log(tmp_path / "orders-0", LogConfig(retention_bytes=limit, retention_ms=-1))
    sizes = [segment.size_bytes for segment in log.segments]
    assert sizes == [700 * MB] * 3 + [1_234]
    planned = execute.plan_of(log, NOW_MS)
    assert len(planned.deletions) == count
    if not count:
        return
    base = execute.begin(log, planned)
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)
    execute.raise_start(log, NOW_MS, base)
    assert len(execute.finish(log)) == count
    assert log.log_start_offset == [0, 10, 20, 30, 31][count]
    assert len(log.segments) == (4 - count or 1)
    assert len(list((tmp_path / "orders-0").glob("*.log.deleted"))) == count


def sparse_log(directory: Path, config: LogConfig) -> UnifiedLog:
    """Three closed segments without blocks and an active one with a batch, stopped cleanly."""
    directory.mkdir()
    for base in (0, 10, 20, 30):
        for kind in ("log", "index", "timeindex"):
            with (directory / f"{base:020d}.{kind}").open("wb") as file:
                if kind == "log" and base < 30:
                    file.truncate(700 * MB)
                elif kind == "log":
                    empty = len(one_record(30, 1000, b"").encode())
                    data = one_record(30, 1000, b"v" * (1_234 - empty - 2)).encode()
                    file.write(data)
    environment = environment_of(SystemFilesystem(), SimClock(NOW_MS))
    log = load_log(str(directory), config, environment, clean=True, recovery_point=31)
    log.update_high_watermark(log.log_end_offset)
    return log
