"""What is kept of the keys of many records in bounded memory: the heaviest, and a sample of all.

The heaviest keys are counted exactly until there are more than KEYS_MAX of them; then the lightest
are forgotten, and ``missed_bytes`` bounds what any key that is not shown, or is shown with less
than it has, may have lost. The sample holds the SAMPLE_MAX keys with the smallest 31-bit hashes,
each with its last offset and what it weighs there: with fewer keys than that it is all of them (but
for those whose hashes are the same), with more the number of keys and the weight of the last record
of each are estimates, off by about two percent. Sketches of parts of a log add up.

Needs pyarrow. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.kernels.records.record_build import partition_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

KEYS_MAX = 20_000
SAMPLE_MAX = 4_096
_HASHES = 1 << 31
_PENDING_MAX = 4 * KEYS_MAX
_HASH, _OFFSET, _SIZE = range(3)


class HeavyKey(NamedTuple):
    """A key and at least how much there is of it."""

    key: bytes
    records: int
    bytes: int


class KeySketch:
    """See the module. Picklable."""

    def __init__(self) -> None:
        self._heavy = _table(pa.array([], pa.binary()), np.empty((0, 2), np.int64))
        self._sample: Numbers = np.empty((0, 3), np.int64)  # rising hashes
        self.missed_bytes = 0

    def add(self, keys: pa.Array, sizes: pa.Array, offsets: pa.Array) -> None:
        """Records in the order of their offsets: keys without null, bytes of key and value."""
        if not len(keys):
            return
        ones = np.ones(len(keys), np.int64)
        records = pa.table(
            {"key": keys, "records": ones, "bytes": sizes, "offset": offsets, "size": sizes}
        )
        found = records.group_by("key", use_threads=False).aggregate(
            [("records", "sum"), ("bytes", "sum"), ("offset", "max"), ("size", "last")]
        )
        distinct = found["key"].combine_chunks()
        self._add_sample(
            np.column_stack(
                [hashes_of(distinct), found["offset_max"].to_numpy(), found["size_last"].to_numpy()]
            )
        )
        numbers = [found["records_sum"].to_numpy(), found["bytes_sum"].to_numpy()]
        self._add_heavy(_table(distinct, np.column_stack(numbers)))

    def merge(self, other: KeySketch) -> None:
        """Take over what another one knows."""
        self.missed_bytes += other.missed_bytes
        self._add_sample(other._sample)
        self._add_heavy(other._heavy)
        self.settle()

    def settle(self) -> None:
        """Keep KEYS_MAX keys at most: before it travels, and before it is asked."""
        grouped = self._heavy.group_by("key", use_threads=False).aggregate(
            [("records", "sum"), ("bytes", "sum")]
        )
        order = pc.sort_indices(grouped, [("bytes_sum", "descending"), ("key", "ascending")])
        grouped = grouped.take(order)
        if len(grouped) > KEYS_MAX:
            self.missed_bytes += grouped["bytes_sum"][KEYS_MAX].as_py()
            grouped = grouped.slice(0, KEYS_MAX)
        numbers = [grouped["records_sum"].to_numpy(), grouped["bytes_sum"].to_numpy()]
        self._heavy = _table(grouped["key"].combine_chunks(), np.column_stack(numbers))

    def _add_heavy(self, more: pa.Table) -> None:
        self._heavy = pa.concat_tables([self._heavy, more])
        if len(self._heavy) > _PENDING_MAX:
            self.settle()

    def _add_sample(self, more: Numbers) -> None:
        """The newest record of each hash, of the smallest hashes."""
        if len(self._sample) == SAMPLE_MAX:
            more = more[more[:, _HASH] <= self._sample[-1, _HASH]]
        both = np.concatenate([self._sample, more])
        both = both[np.lexsort((both[:, _OFFSET], both[:, _HASH]))]
        is_newest = np.ones(len(both), np.bool_)
        is_newest[:-1] = both[1:, _HASH] != both[:-1, _HASH]
        self._sample = both[is_newest][:SAMPLE_MAX]

    def heaviest(self, count: int) -> list[HeavyKey]:
        """The keys with the most bytes, settled before."""
        rows = self._heavy.slice(0, count).to_pylist()
        return [HeavyKey(row["key"], row["records"], row["bytes"]) for row in rows]

    @property
    def is_exact(self) -> bool:
        """Whether the sample holds every key."""
        return len(self._sample) < SAMPLE_MAX

    @property
    def distinct_keys(self) -> int:
        """How many keys there are, or about."""
        if self.is_exact:
            return len(self._sample)
        return round((SAMPLE_MAX - 1) * _HASHES / int(self._sample[-1, _HASH]))

    @property
    def last_bytes(self) -> int:
        """What the last records of all keys weigh, or about: what compaction would keep."""
        sizes = self._sample[:, _SIZE]
        if self.is_exact:
            return int(sizes.sum())
        return round(float(sizes.mean()) * self.distinct_keys)


def hashes_of(keys: pa.Array) -> Numbers:
    """A 31-bit hash of each key of a binary array without null."""
    out = np.empty(len(keys), np.int64)
    if len(keys):
        _, places, data = keys.buffers()
        ends = np.frombuffer(places, np.int32)[keys.offset : keys.offset + len(keys) + 1]
        memory = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        lengths = np.diff(ends).astype(np.int64)
        partition_keys(memory[ends[0] : ends[-1]], lengths, _HASHES, out)
    return out


def _table(keys: pa.Array, numbers: Numbers) -> pa.Table:
    return pa.table({"key": keys, "records": numbers[:, 0], "bytes": numbers[:, 1]})
