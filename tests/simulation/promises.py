"""What the clients of a simulated daemon were told, and what a log must hold because of it.

A plain model: dictionaries and lists, no knowledge of files. ``PartitionPromises.settle`` compares
it with the content of a log after a restart and takes over what the crash decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.records.record_batch import PREFIX_BYTES, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.values import Acks

Batch = tuple[int, int, bytes]  # base offset, last offset, bytes


@dataclass
class Attempt:
    """One produce. ``payload``: the batch behind the prefix that the log rewrites."""

    data: bytes
    acks: Acks
    client: int  # -1: not idempotent
    base_sequence: int
    key: bytes | None = None  # of its one record, in a compacted topic

    @property
    def payload(self) -> bytes:
        return self.data[PREFIX_BYTES:]

    @property
    def record_count(self) -> int:
        """Offsets that it takes."""
        return read_header(self.data).record_count


@dataclass
class PartitionPromises:
    """One partition. ``is_compacted``: of one-record batches, of which the last of a key counts."""

    is_compacted: bool = False
    present: dict[int, Attempt] = field(default_factory=dict)  # by base offset, as last known
    open: list[Attempt] = field(default_factory=list)  # sent, the outcome is not known
    lost: dict[int, set[bytes]] = field(default_factory=dict)  # may come back where they were
    durable_end: int = 0  # everything below survives whatever happens
    answered_end: int = 0  # everything below survives a kill
    start: int = 0  # acknowledged
    start_asked: int = 0
    has_retention: bool = False  # the start may move by itself, nobody tells
    latest: dict[int, Attempt] = field(default_factory=dict)  # of each idempotent client

    def note_present(self, base_offset: int, attempt: Attempt) -> None:
        """It was answered, read or found with this offset."""
        known = self.present.setdefault(base_offset, attempt)
        assert known is attempt, f"I1: offset {base_offset} was given twice"
        self._close(attempt)

    def note_refused(self, attempt: Attempt) -> None:
        """Sent once and not taken; it may have been sent another time."""
        for position, each in enumerate(self.open):
            if each is attempt:
                del self.open[position]
                return

    def is_hidden(self, attempt: Attempt) -> bool:
        """Whether it was answered, and may lie below the log start."""
        return any(
            known is attempt
            and (self.has_retention or base + attempt.record_count <= self.start_asked)
            for base, known in self.present.items()
        )

    def _close(self, attempt: Attempt) -> None:
        self.open = [each for each in self.open if each is not attempt]

    def meet(self, batch: Batch) -> Attempt | None:
        """The attempt that a batch in the log is; AssertionError when there was none (I4, I8)."""
        base, _, data = batch
        payload = data[PREFIX_BYTES:]
        if self.is_compacted and not read_header(data).record_count:
            assert base in self.present, f"I4: an empty batch at offset {base}, and nobody sent one"
            return None
        known = self.present.get(base)
        if known is not None:
            assert known.payload == payload, f"I8: other bytes at offset {base}"
            return known
        for attempt in self.open:
            if attempt.payload == payload:
                self.note_present(base, attempt)
                return attempt
        assert payload in self.lost.get(base, ()), f"I4: nobody sent what lies at offset {base}"
        return None

    def settle(self, found: Sequence[Batch], start: int, end: int, *, is_kill: bool) -> None:
        asked = end if self.has_retention else self.start_asked
        assert self.start <= start <= max(asked, self.start), "I6: start"
        assert end >= self.durable_end, f"I2: ends at {end}, durable was {self.durable_end}"
        assert not is_kill or end >= self.answered_end, f"I3: ends at {end} after a kill"
        if self.is_compacted:  # the headers that cleans leave of batches may be alike
            found = [batch for batch in found if read_header(batch[2]).record_count]
        assert len({batch[2][PREFIX_BYTES:] for batch in found}) == len(found), "I4: twice"
        for batch in found:
            self.meet(batch)
        self.start = self.start_asked = start
        bases = {batch[0] for batch in found}
        for base in sorted(self.present):
            # A compacted log may be cut in the middle: an empty segment behind lost records is no
            # proof that there were any, and stays.
            is_cut = self.is_compacted and base >= self.durable_end and base not in bases
            if base + self.present[base].record_count > end or (is_cut and not is_kill):
                attempt = self.present.pop(base)
                self.lost.setdefault(base, set()).add(attempt.payload)
        last_of_key = {self.present[base].key: base for base in sorted(self.present)}
        for base, attempt in self.present.items():
            is_hidden = base + attempt.record_count <= start
            if self.is_compacted and last_of_key[attempt.key] > base:
                continue  # superseded: it may be cleaned away or not
            assert is_hidden or base in bases, f"I5: offset {base} is gone from the middle"
        self.answered_end = end
        self.open.clear()


@dataclass
class TopicPromises:
    """One topic. ``is_certain``: the answer to its creation or deletion came.

    ``asked_count`` and ``asked_config``: of a change without an answer, or with one that failed: a
    restart may show it.
    """

    partition_count: int
    exists: bool
    is_compacted: bool = False
    is_certain: bool = False
    has_retention: bool = False
    flush_messages: int | None = None
    asked_count: int | None = None
    asked_config: int | None = None
    partitions: dict[int, PartitionPromises] = field(default_factory=dict)

    def partition(self, number: int) -> PartitionPromises:
        new = PartitionPromises(self.is_compacted, has_retention=self.has_retention)
        return self.partitions.setdefault(number, new)

    def settle_changes(self, partition_count: int, flush_messages: int | None) -> None:
        """What a restart found: what was answered, or the change that was under way, whole."""
        assert partition_count in (self.partition_count, self.asked_count or self.partition_count)
        assert flush_messages in (self.flush_messages, self.asked_config or self.flush_messages)
        self.partition_count, self.flush_messages = partition_count, flush_messages
        self.asked_count = self.asked_config = None
