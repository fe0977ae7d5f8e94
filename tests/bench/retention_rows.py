"""Retention: a check over many logs from which nothing goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import datasets
from tests.bench.planting import plant_clean
from tests.bench.results import Goal, Result, Sample, answer_of
from tests.bench.start_rows import partitions_of, topics_of

if TYPE_CHECKING:
    from tests.bench.bench import Bench

_SEGMENTS = 10
# Both limits are set and far away, so that both rules look.
FAR_LIMITS = {"retention.ms": "3153600000000", "retention.bytes": "1073741824"}


def retention_pass(bench: Bench) -> Result:
    """One check of ``kafka-log-retention`` in a manager without load."""
    count = bench.size(2000, 100)
    files, end = datasets.segment_files(_SEGMENTS), datasets.end_offset(_SEGMENTS)
    daemon = bench.daemon()
    with daemon:
        for topic, partitions in topics_of(count):
            daemon.create_topic(topic, partitions, **FAR_LIMITS)
        daemon.stop()
        plant_clean(daemon.log_dirs[0], files, partitions_of(count), end)

        def ours() -> Sample:
            found = answer_of("retention_once", daemon.log_dirs[0])
            assert found["segments"] == count * _SEGMENTS, found
            later = found["later_ms"]
            extra = {
                "first_ms": found["first_ms"],
                "slowest_ms": later[-1],
                "cpu_ms": found["later_cpu_ms"][len(later) // 2],
            }
            return Sample(later[len(later) // 2], extra=extra)

        rounds = bench.alternate(ours, None)
    return Result(
        name=bench.name,
        what=f"Retention check with nothing to do, {count:,} logs of {_SEGMENTS} segments",
        unit="ms",
        durability="",
        goal=Goal("<= 100 ms", at_most=100),
        rounds=rounds,
        lower_is_better=True,
        notes=("median of the passes after the first; the first asks segments for timestamps",),
    )
