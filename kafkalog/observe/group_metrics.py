"""The metric families of consumer groups, under kafkalog's and under kafka_exporter's names.

Owns names, help and how many series there are: one for each pair of group and topic, as
kafka_exporter sums them. Groups are named by clients, so that the limit of partitions is theirs
too: beyond it there is one series a group, and beyond that one for all groups. Pure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.observe.exposition import SLICE, RowFamily

if TYPE_CHECKING:
    from collections.abc import Iterable


class GroupSample(NamedTuple):
    """One group and topic; None: the sum over all of them.

    lag         over the partitions that are served
    committed   sum of the committed offsets of those
    left        see ``GROUP_FAMILIES``; None: not known yet
    deleted     offsets of the lag that are gone: the group can read them no more
    """

    group: str | None
    topic: str | None
    lag: int
    committed: int
    left: float | None
    deleted: int = 0

    def plus(self, lag: int, committed: int, left: float | None, deleted: int = 0) -> GroupSample:
        """With more: the sums, and the least that is left, not known where one of both is not."""
        return self._replace(
            lag=self.lag + lag,
            committed=self.committed + committed,
            left=None if left is None or self.left is None else min(left, self.left),
            deleted=self.deleted + deleted,
        )

    @property
    def consumergroup(self) -> str | None:
        """The group, by the label of kafka_exporter."""
        return self.group


GROUP_FAMILIES = (
    RowFamily(
        "kafkalog_group_lag_offsets",
        "lag",
        "Offsets that readers see and the group has not committed, of all partitions.",
    ),
    RowFamily(
        "kafkalog_group_retention_left_ratio",
        "left",
        "Share of retention.ms or retention.bytes, the smaller, that is left before retention "
        "deletes a record that the group has not read, of the nearest partition. 1 if nothing is "
        "unread or no limit applies; 0 if the next check deletes it.",
    ),
)
KAFKA_EXPORTER_GROUP_NAMES = (
    RowFamily("kafka_consumergroup_lag_sum", "lag", "As kafka_exporter names it."),
    RowFamily("kafka_consumergroup_current_offset_sum", "committed", "As kafka_exporter names it."),
)


async def fitting(
    samples: Iterable[GroupSample], limit: int, *, has_topics: bool
) -> list[GroupSample]:
    """The series of these pairs: by pair, group, or all in one, whichever is within the limit.

    ``limit`` 0: none. ``has_topics`` False: not by pair.
    """
    rows = list(samples)
    if not has_topics or 0 < limit < len(rows):
        rows = await _summed(rows, by_group=True)
        if 0 < limit < len(rows):
            rows = await _summed(rows, by_group=False)
    return rows


async def _summed(samples: Iterable[GroupSample], *, by_group: bool) -> list[GroupSample]:
    sums: dict[str | None, GroupSample] = {}
    for count, one in enumerate(samples, 1):
        group = one.group if by_group else None
        sofar = sums.get(group, GroupSample(group, None, 0, 0, 1.0))
        sums[group] = sofar.plus(one.lag, one.committed, one.left)
        if count % SLICE == 0:
            await asyncio.sleep(0)
    return list(sums.values())
