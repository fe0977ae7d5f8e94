"""Placement: the log directories that new partitions go to.

Pure. Source: Kafka's LogManager.nextLogDirs: the directory with the fewest logs, among those that
are not cordoned; when all are, the first one takes everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import LogDirOffline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.manager.log_dir import LogDir


def place(log_dirs: Sequence[LogDir], log_counts: Mapping[str, int], count: int) -> list[str]:
    """Paths of ``count`` new partitions, in order; of equally full ones the first is taken.

    ``log_dirs``: those that can take one, as configured. LogDirOffline when there is none.
    """
    if not log_dirs:
        raise LogDirOffline("No log directory is online")
    uncordoned = [log_dir.path for log_dir in log_dirs if not log_dir.is_cordoned]
    counts = {path: log_counts.get(path, 0) for path in uncordoned or [log_dirs[0].path]}
    placed = []
    for _ in range(count):
        path = min(counts, key=lambda each: counts[each])
        counts[path] += 1
        placed.append(path)
    return placed
