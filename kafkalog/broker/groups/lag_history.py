"""The lag of groups over the last hour, for pages that have no Prometheus to ask.

A sample each minute. Bounded: of the first ``GROUPS_MAX`` groups by name; 60 pairs of numbers for
each, in memory. One thread takes samples; any thread reads.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, operation_class, requires

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLES = 60
PERIOD_MS = 60_000
GROUPS_MAX = 200
_LATELY_MS = 20 * PERIOD_MS
_LEAST_EARLIER = 10


@operation_class()
class LagHistory:
    """See the module."""

    def __init__(self) -> None:
        # changed by the sampling thread alone
        self._sampled_ms = 0
        self._pairs: dict[str, array[int]] = {}  # wall clock and lag, oldest first

    @internal
    def note(self, wall_ms: int, lags: Mapping[str, int]) -> None:
        """Take a sample of all groups, sorted by name, when a minute has gone by."""
        if abs(wall_ms - self._sampled_ms) < PERIOD_MS:
            return
        self._sampled_ms = wall_ms
        seen = list(lags)[:GROUPS_MAX]
        for group in seen:
            pairs = self._pairs.setdefault(group, array("q"))
            pairs.extend((wall_ms, lags[group]))
            del pairs[: -2 * SAMPLES]
        for gone in self._pairs.keys() - seen:
            del self._pairs[gone]

    @internal
    def rising(self) -> dict[str, int]:
        """Groups whose lags of 20 minutes were all above those before in the hour, with the latest.

        A backlog that shrinks, or comes and goes, is none; nor is one of which little is known.
        """
        found = {}
        for group, pairs in list(self._pairs.items()):
            flat = pairs.tolist()  # one step: the sampling thread may add
            lately_ms = flat[-2] - _LATELY_MS
            samples = list(zip(flat[::2], flat[1::2], strict=True))
            earlier = [lag for at_ms, lag in samples if at_ms <= lately_ms]
            if len(earlier) < _LEAST_EARLIER:
                continue
            if min(lag for at_ms, lag in samples if at_ms > lately_ms) > max(earlier):
                found[group] = flat[-1]
        return found

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def of(self, group: str) -> list[tuple[int, int]]:
        """Time in ms and lag, oldest first; empty: no sample was taken of it."""
        flat = list(self._pairs.get(group, ()))
        return list(zip(flat[::2], flat[1::2], strict=True))
