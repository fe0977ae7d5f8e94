"""The lag of groups over the last hour, for pages that have no Prometheus to ask.

A sample each minute: the sum over the group's partitions that are served. Bounded: of the first
``GROUPS_MAX`` groups by name that together have no more than ``COMMITS_MAX`` commits; 60 pairs of
numbers for each, in memory. One thread takes samples; any thread reads.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, operation_class, requires
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.broker.catalog import Logs
    from kafkalog.format.disk.group_offsets import CommittedOffset
    from kafkalog.format.topic_names import TopicPartition

    Commits = Mapping[TopicPartition, CommittedOffset]

SAMPLES = 60
PERIOD_MS = 60_000
GROUPS_MAX = 200
COMMITS_MAX = 20_000


@operation_class()
class LagHistory:
    """See the module."""

    def __init__(
        self, logs: Logs, groups: Callable[[], list[str]], commits_of: Callable[[str], Commits]
    ) -> None:
        # constant after construction
        self._logs = logs
        self._groups = groups
        self._commits_of = commits_of
        # changed by the sampling thread alone
        self._sampled_ms = 0
        self._pairs: dict[str, array[int]] = {}  # wall clock and lag, oldest first

    @internal
    def sample(self, wall_ms: int) -> None:
        """Take one when a minute has gone by. Touches no disk."""
        if abs(wall_ms - self._sampled_ms) < PERIOD_MS:
            return
        self._sampled_ms = wall_ms
        left = COMMITS_MAX
        seen = set[str]()
        try:
            for group in self._groups()[:GROUPS_MAX]:
                commits = self._commits_of(group)
                left -= len(commits)
                if left < 0:
                    break
                seen.add(group)
                pairs = self._pairs.setdefault(group, array("q"))
                pairs.extend((wall_ms, self._lag(commits)))
                del pairs[: -2 * SAMPLES]
        except KafkalogError:  # they are loaded, or their directory is offline
            return
        for gone in self._pairs.keys() - seen:
            del self._pairs[gone]

    def _lag(self, commits: Commits) -> int:
        lag = 0
        for at, committed in commits.items():
            try:
                end = self._logs.log_of(at.topic, at.partition).high_watermark
            except KafkalogError:
                continue
            lag += max(0, end - committed.offset)
        return lag

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def of(self, group: str) -> list[tuple[int, int]]:
        """Time in ms and lag, oldest first; empty: no sample was taken of it."""
        flat = list(self._pairs.get(group, ()))
        return list(zip(flat[::2], flat[1::2], strict=True))
