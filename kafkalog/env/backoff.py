"""Backoff: how often something is tried, and the pauses between. Pure.

The random part is there because many tasks meet a busy store at once: they shall not meet it again
at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.env.random import Random

_DOUBLINGS_MAX = 60  # then it is too long for any float


@dataclass(frozen=True, slots=True)
class Backoff:
    """The number of tries, and the first and longest pause between two of them."""

    tries: int = 5
    first_seconds: float = 0.5
    seconds_max: float = 8.0

    def pause_seconds(self, tried: int, random: Random) -> float:
        """The pause after so many tries: from a half to the whole of the doubled one."""
        doubled = self.first_seconds * 2.0 ** min(tried - 1, _DOUBLINGS_MAX)
        return min(doubled, self.seconds_max) * (1 + random.below(1000) / 1000) / 2
