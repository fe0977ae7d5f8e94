"""Goal: after a crash anywhere the segments recover to a prefix that holds all that was flushed.
Method: stop a run of appends, rolls, flushes and a truncation before every disk operation.
"""

from __future__ import annotations

import pytest

from kafkalog.log.log_config import LogConfig
from kafkalog.log.segment import segment_reader
from kafkalog.log.segment.log_segment import LogSegment
from tests.log_world import LogWorld, append, joined
from tests.naive.batches import one_record
from tests.sim.sim_crash import ALL_MODES, CrashMode
from tests.sim.sim_faults import SimulatedCrash

CONFIG = LogConfig(segment_index_bytes=128, index_interval_bytes=150)
BATCHES = [one_record(offset, 1000 + offset) for offset in range(9)]
END_OF_RUN = 10**6
SEEDED_MODES = {CrashMode.PREFIX, CrashMode.SUBSET, CrashMode.TORN_SECTOR, CrashMode.TORN_BYTE}


class Run:
    """Appends nine batches in segments of three, flushing behind every second one."""

    def __init__(self, stop_at: int, *, is_partial: bool) -> None:
        self.world = LogWorld(CONFIG)
        self.log = self.world.new_log()
        self.flushed_end = 0
        self.world.filesystem.sync_all()
        done = len(self.world.filesystem.operations)
        self.world.filesystem.stop_at(done + stop_at, is_partial=is_partial)
        self.is_finished = False
        try:
            self._run()
            self.is_finished = True
        except SimulatedCrash:
            pass

    def _run(self) -> None:
        for batch in BATCHES:
            if batch.base_offset in (3, 6):
                self.log.roll()
            append(self.log, batch)
            if batch.base_offset % 2:
                plan = self.log.plan_flush()
                assert plan is not None
                plan.run()
                self.log.mark_flushed(plan)
                self.flushed_end = plan.end_offset


def recovered(run: Run, mode: CrashMode, seed: int) -> tuple[LogWorld, bytes]:
    """The bytes that reading gives after recovery of every segment that was left."""
    world = LogWorld(CONFIG, disk=run.world.filesystem.crash(mode, seed))
    stats = world.filesystem.list_dir_stats(world.directory.path)
    data, expected_base = b"", 0
    for stat in stats:
        if not stat.name.endswith(".log"):
            continue
        segment = LogSegment(
            world.environment,
            world.directory,
            int(stat.name[:20]),
            CONFIG,
            size_bytes=stat.size,
            last_modified_ms=stat.mtime_ms,
            has_transaction_index=False,
        )
        result = segment.recover()
        if segment.base_offset != expected_base:
            break  # a hole: what lies behind it is not part of the log
        found = segment_reader.read(segment, 0, 10_000)
        data += b"" if found is None else bytes(found.data)
        segment.offset_index.sanity_check()
        segment.time_index.sanity_check()
        expected_base = result.next_offset
    return world, data


def prefixes() -> dict[bytes, int]:
    """Bytes of the first n batches: n."""
    return {joined(BATCHES[:count]): count for count in range(len(BATCHES) + 1)}


@pytest.mark.parametrize("mode", ALL_MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("is_partial", [False, True])
def test_recovery_gives_a_prefix_with_all_that_was_flushed(
    mode: CrashMode, *, is_partial: bool
) -> None:
    """M14: before every operation, also in the middle of a write, whatever the disk kept."""
    known = prefixes()
    stop_at = 0
    while True:
        run = Run(stop_at, is_partial=is_partial)
        for seed in range(2 if mode in SEEDED_MODES else 1):
            _, data = recovered(run, mode, seed)
            assert data in known, f"stopped before operation {stop_at}"
            assert known[data] >= run.flushed_end, f"stopped before operation {stop_at}"
        if run.is_finished:
            break
        stop_at += 1
    assert stop_at > 40


def test_truncation_is_repeated_or_done() -> None:
    """M14: a cut log holds a prefix that ends at or behind the cut, never a mix."""
    known = prefixes()
    for stop_at in range(60):
        run = Run(END_OF_RUN, is_partial=False)
        run.world.filesystem.sync_all()
        disk = run.world.filesystem
        disk.stop_at(len(disk.operations) + stop_at)
        try:
            run.log.truncate_to(4)
            is_done = True
        except SimulatedCrash:
            is_done = False
        _, data = recovered(run, CrashMode.KEEP_ALL, 0)
        assert known[data] >= 4
        if is_done:
            assert data == joined(BATCHES[:4])
            return
    pytest.fail("the truncation never ended")
