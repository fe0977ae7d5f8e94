"""GroupLags: how far groups are behind their logs, and how near retention is to what they miss.

Owns the task ``kafkalog-group-lags``, which every ten seconds visits each commit of each group and
replaces what a scrape and the history read. It looks at what is published, without the disk, and
yields between two partitions (``TimeSlice``), because a daemon may have a million commits. The
other part, whether a record goes before a group has read it, is asked of the rules of retention
(``forecast.left_ratio``). Any thread may read ``samples``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.groups.groups import PartitionLag
from kafkalog.env.clock import TimeSlice
from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.log.retention import execute
from kafkalog.log.retention.forecast import left_ratio
from kafkalog.log.values import WouldBlock
from kafkalog.observe.group_metrics import GroupSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.groups.offsets import GroupOffsets
    from kafkalog.env.clock import Clock
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.retention.plan import Hold
    from kafkalog.log.unified_log import UnifiedLog

GROUP_LAGS_TASK = "kafkalog-group-lags"
PERIOD_MS = 10_000


class GroupHealth(NamedTuple):
    """What of groups needs an operator.

    samples   of each group and topic: how near retention is to what was not read
    rising    lags that grow, by group
    """

    samples: Sequence[GroupSample]
    rising: Mapping[str, int]


class GroupLags:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        clock: Clock,
        offsets: GroupOffsets,
        hold_of: Callable[[UnifiedLog, LogConfig], Hold | None],
    ) -> None:
        """``hold_of`` as ``ArchivedOffsets`` has it."""
        # constant after construction
        self._logs = logs
        self._clock = clock
        self._offsets = offsets
        self._hold_of = hold_of
        # published, replaced as a whole
        self.samples: Sequence[GroupSample] = ()

    def health(self) -> GroupHealth:
        """As the task left it. Any thread."""
        return GroupHealth(self.samples, self._offsets.lag_history.rising())

    def run_once(self) -> None:
        """Visit all commits. Loop body."""
        wall_ms, time_slice = self._clock.wall_ms(), TimeSlice(self._clock)
        samples, lags = list[GroupSample](), dict[str, int]()
        try:
            for group in self._offsets.groups():
                of_group = list(self._of_group(group, wall_ms, time_slice))
                samples += of_group
                lags[group] = sum(each.lag for each in of_group)
        except KafkalogError:  # commits are being loaded, or their directory is offline
            self.samples = ()
            return
        self.samples = samples
        self._offsets.lag_history.note(wall_ms, lags)

    def _of_group(self, group: str, wall_ms: int, time_slice: TimeSlice) -> Iterator[GroupSample]:
        """One sample for each topic of which a partition is served."""
        topics: dict[str, GroupSample] = {}
        for at, committed in self._offsets.committed(group).items():
            time_slice.maybe_yield()
            try:
                log = self._logs.log_of(at.topic, at.partition)
            except KafkalogError:
                continue  # the loss is told elsewhere
            found = PartitionLag(at, committed, log.log_start_offset, log.high_watermark)
            lag, deleted = found.lag or 0, found.deleted or 0
            is_unread = lag > deleted  # what is still there
            left = self._left(log, committed.offset, wall_ms) if is_unread else 1.0
            sofar = topics.get(at.topic, GroupSample(group, at.topic, 0, 0, 1.0))
            topics[at.topic] = sofar.plus(lag, committed.offset, left, deleted)
        yield from topics.values()

    def _left(self, log: UnifiedLog, offset: int, wall_ms: int) -> float | None:
        """As ``GroupSample.left``, of a log with records that were not read."""
        policy = execute.policy_of(log.config)
        if not policy.has_limit:
            return 1.0
        try:
            facts = execute.facts_of(log, self._hold_of(log, log.config), may_block=False)
            left = left_ratio(facts, policy, wall_ms, offset)
        except (WouldBlock, KafkalogError, FormatError, OSError):
            return None  # a segment whose largest timestamp was not read yet, or cannot be
        return 1.0 if left is None else left
