"""What plans of one process found in objects that have not changed since: for streams and jobs.

Everything is stored with the identity of the object that it was read from (`ObjectStore`: the
ETag, version or generation, else size and modification time), and is used while a listing shows
that identity. Bounded; the oldest entries are dropped first. Threads may share a cache: each
statement on a dictionary is whole, and two threads that miss only read twice.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

PAIRS_MAX = 64
"""Neighbours of one index: a plan of a segment of 8 GiB in pieces of 128 MiB finds them all."""

SEGMENTS_MAX = 250_000
"""Indexes whose neighbours are held, in about 400 bytes each."""

ENDS_MAX = 50_000
"""Partitions whose ends are held."""

FILES_MAX = 2_000
"""Small files that are held."""

FILE_BYTES_MAX = 64 << 10
"""Size of the largest one."""

Entry = tuple[int, int]

_NONE = -1  # no entry: offsets and positions in an index are not negative


class Neighbours:
    """Pairs of neighbouring entries of one index; either may be missing at an end."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs = array("q")

    def add(self, before: Entry | None, after: Entry | None) -> None:
        """Remember a pair; the oldest one is dropped when there are too many."""
        pair = array("q", (*(before or (_NONE, _NONE)), *(after or (_NONE, _NONE))))
        known = self._pairs
        if any(known[at : at + 4] == pair for at in range(0, len(known), 4)):
            return
        self._pairs = known[4:] + pair if len(known) == 4 * PAIRS_MAX else known + pair

    def around(self, column: int, value: int) -> tuple[Entry | None, Entry | None] | None:
        """The last entry below a value of this column and the first that is not; None: unknown."""
        pairs = self._pairs
        for at in range(0, len(pairs), 4):
            low, high = pairs[at + column], pairs[at + 2 + column]
            if low < value and (high == _NONE or value <= high):
                before = None if low == _NONE else (pairs[at], pairs[at + 1])
                return before, None if high == _NONE else (pairs[at + 2], pairs[at + 3])
        return None


class Versions(Generic[K, V]):
    """A value for each key and the identity that it belongs to."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: dict[K, tuple[object, V]] = {}

    def get(self, key: K, identity: object) -> V | None:
        """The value of this identity, if it is known."""
        known = self._values.get(key)
        return known[1] if known is not None and known[0] == identity else None

    def put(self, key: K, identity: object, value: V) -> V:
        """Remember a value in the place of that of an older identity."""
        self._values.pop(key, None)
        while len(self._values) >= self._size_max:
            self._values.pop(next(iter(self._values), key), None)
        self._values[key] = identity, value
        return value

    def get_or(self, key: K, identity: object, make: Callable[[], V]) -> V:
        """The known value, or a new one."""
        known = self.get(key, identity)
        return self.put(key, identity, make()) if known is None else known


class PlanCache:
    """See the module.

    neighbours   by path of an offset index
    newest       largest timestamp, by path of a time index
    ends         end of the last valid batch, by directory of a partition
    files        contents of small files, by path
    """

    def __init__(self) -> None:
        self.neighbours: Versions[str, Neighbours] = Versions(SEGMENTS_MAX)
        self.newest: Versions[str, int] = Versions(SEGMENTS_MAX)
        self.ends: Versions[str, int] = Versions(ENDS_MAX)
        self.files: Versions[str, bytes] = Versions(FILES_MAX)


OF_PROCESS = PlanCache()
"""Shared by all plans of this process: Spark plans in a process that it reuses."""
