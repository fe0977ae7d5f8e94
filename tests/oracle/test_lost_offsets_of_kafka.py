"""Goal: what a log of Kafka's lost is refused by name; its gaps of compaction are served as ever.
Method: each closed ``.log`` of what a real broker wrote is removed or emptied, by itself; Kafka
loads what our start left of some, and has the same log.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.env.clock import SystemClock
from kafkalog.errors import LostOffsets
from kafkalog.format.records.record_batch import read_header
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.log.values import Isolation
from tests.oracle.loads import LoadCase, load_with_kafka
from tests.oracle.real_directories import TIME

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog
    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle


def loaded(directory: Path, topic: str) -> UnifiedLog:
    """As the daemon adopts it after Kafka's clean stop."""
    policy = frozenset({"compact" if topic == "compacted" else "delete"})
    log = load_log(
        str(directory),
        LogConfig(cleanup_policy=policy),
        tool_environment(SystemClock()),
        clean=True,
        corruption="keep",
        may_have_gaps=topic == "compacted",
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def begins(log: UnifiedLog) -> dict[int, int | tuple[object, object]]:
    """By offset: where the batch of a fetch begins, or the range that it is refused for."""
    found: dict[int, int | tuple[object, object]] = {}
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            data = log.read(offset, 1, Isolation.LOG_END).data
        except LostOffsets as error:
            found[offset] = error.details["first_offset"], error.details["last_offset"]
        else:
            found[offset] = read_header(data).base_offset
    return found


@pytest.mark.parametrize("topic", ["plain", "txn", "compacted"])
def test_each_missing_log_of_kafkas(
    real_directories: RealDirectories, kafka: Kafka, tmp_path: Path, topic: str
) -> None:
    source = real_directories.partition("stopped", topic)
    whole = shutil.copytree(source, tmp_path / "whole" / source.name)
    log = loaded(whole, topic)
    before, bases = begins(log), [segment.base_offset for segment in log.segments]
    log.close_handles()
    assert not [each for each in before.values() if isinstance(each, tuple)]
    assert len(bases) >= 3, "two closed ones to lose"
    cases = []
    for slot, base in enumerate(bases[:-1]):
        lost = base, bases[slot + 1] - 1
        for how in ("removed", "emptied"):
            name = tmp_path / f"{base}-{how}" / source.name
            damaged = shutil.copytree(source, name)
            path = damaged / f"{base:020d}.log"
            if how == "removed":
                path.unlink()
            elif path.stat().st_size:
                path.write_bytes(b"")
            for _ in range(2):
                log = loaded(damaged, topic)
                found = begins(log)
                log.close_handles()
                inside = dict.fromkeys(range(lost[0], lost[1] + 1), lost)
                # A fetch in a gap of compaction in front of the loss would pass it by as well.
                gap = {at: lost for at in before if at < base and int(str(before[at])) >= base}
                assert found == before | inside | gap, (base, how)
        cases.append(LoadCase(damaged, tmp_path / f"case-{base}", LoadOptions(), {}))
    options = LoadOptions(now_ms=TIME, clean=True)
    cases = [LoadCase(case.source, case.home, options, case.configs) for case in cases[:3]]
    for result in load_with_kafka(kafka, tmp_path, cases):
        assert result["loaded"]["logEndOffset"] == max(before) + 1
