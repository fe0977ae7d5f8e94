"""The only source of random numbers: segment jitter, topic ids, tie breaks."""

from __future__ import annotations

import os
import random
from typing import Protocol


class Random(Protocol):
    """A source of random numbers."""

    def below(self, bound: int) -> int:
        """Uniform in [0, bound); bound > 0."""

    def uuid_bytes(self) -> bytes:
        """Sixteen random bytes."""


class SystemRandom:
    """The operating system's generator."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def below(self, bound: int) -> int:
        """See Random."""
        return self._random.randrange(bound)

    def uuid_bytes(self) -> bytes:
        """See Random."""
        return os.urandom(16)
