"""SimRandom: chance that a seed decides."""

from __future__ import annotations

import random


class SimRandom:
    """See Random. The same seed gives the same sequence."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid_bytes(self) -> bytes:
        return self._random.randbytes(16)
