"""Goal: append, roll, fetch, list-offsets, delete-records and reopening agree with a plain list.
Method: a Hypothesis state machine drives the log and its plain twin; invariants after each step.
"""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalog.errors import OffsetAboveLogEnd, OffsetBelowLogStart
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import Isolation
from tests.naive.naive_log import NaiveLog
from tests.partition_world import NOW_MS, PartitionWorld, batch, records_of

PRODUCER = 7


class LogMachine(RuleBasedStateMachine):
    """M01 M03 M04 M05 M08: one partition with small segments beside a list of records."""

    def __init__(self) -> None:
        super().__init__()
        config = LogConfig(
            internal_segment_bytes=600, index_interval_bytes=100, segment_index_bytes=120
        )
        self.world = PartitionWorld(config)
        self.naive = NaiveLog()
        self.sent: list[tuple[bytes, int]] = []  # idempotent batches and their first offsets
        self.readable = 0

    @rule(
        values=st.lists(st.one_of(st.none(), st.binary(max_size=60)), min_size=1, max_size=4),
        ages=st.lists(st.integers(0, 9), min_size=4, max_size=4),
        codec=st.sampled_from(list(Codec)),
        is_synced=st.booleans(),
        is_idempotent=st.booleans(),
    )
    def append(
        self,
        values: list[bytes | None],
        ages: list[int],
        codec: Codec,
        is_synced: bool,
        is_idempotent: bool,
    ) -> None:
        timestamps = [NOW_MS - age for age in ages[: len(values)]]
        producer = (-1, -1, -1)
        if is_idempotent:
            producer = (PRODUCER, 0, self.next_sequence())
        data = batch(values, timestamps=timestamps, codec=codec, producer=producer)
        info = self.world.append(data, synced=is_synced)
        rows: list[tuple[int, bytes | None, bytes | None]] = [
            (timestamp, None, value) for timestamp, value in zip(timestamps, values, strict=True)
        ]
        first = self.naive.append(rows)
        assert (info.first_offset, info.last_offset) == (first, first + len(values) - 1)
        assert not info.duplicate
        if is_idempotent:
            self.sent.append((data, first))
            self.sequence = producer[2] + len(values)

    sequence = 0

    def next_sequence(self) -> int:
        return self.sequence

    @rule(back=st.integers(1, 5))
    def retry(self, back: int) -> None:
        """One of the last five idempotent batches once more (after a restart: the last)."""
        if not self.sent:
            return
        data, first = self.sent[-min(back, len(self.sent))]
        info = self.world.append(data)
        assert (info.duplicate, info.first_offset) == (True, first)

    @rule()
    def roll(self) -> None:
        self.world.log.roll()

    @rule(offset=st.integers(-2, 60), max_bytes=st.integers(0, 400))
    def fetch(self, offset: int, max_bytes: int) -> None:
        """Whole batches from the one that holds the offset."""
        log = self.world.log
        if offset < self.naive.start_offset or offset > self.naive.end_offset:
            error = OffsetBelowLogStart if offset < self.naive.start_offset else OffsetAboveLogEnd
            with pytest.raises(error):
                log.read(offset, max_bytes, Isolation.LOG_END)
            return
        found = log.read(offset, max_bytes, Isolation.LOG_END)
        records = records_of(found.data)
        if offset == self.naive.end_offset:
            assert not records
            return
        first = self.naive.first_of_batch_at(offset)
        expected = self.naive.from_offset(first)[: len(records)]
        assert records
        assert [record.value for record in records] == [record.value for record in expected]
        assert records[0].offset == first
        assert found.next_offset == records[-1].offset + 1

    @rule(age=st.integers(-1, 10))
    def list_offset(self, age: int) -> None:
        """Any answer is a record at or after the time, and the first one of its segment."""
        found = self.world.log.offset_for_timestamp(NOW_MS - age, Isolation.LOG_END)
        live = [each for each in self.naive.records if each.offset >= self.naive.start_offset]
        matching = [each.offset for each in live if each.timestamp >= NOW_MS - age]
        if found is None:
            first_base = self.world.bases()[0]
            assert not matching or first_base < self.naive.start_offset
        else:
            assert found.offset == matching[0]

    @rule(offset=st.integers(0, 40))
    def delete_records(self, offset: int) -> None:
        target = min(offset, self.world.log.high_watermark)
        self.naive.delete_below(target)
        assert self.world.log.delete_records(target) == self.naive.start_offset

    @rule()
    def flush(self) -> None:
        self.world.flush()
        assert self.world.log.high_watermark == self.naive.end_offset

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        """Stop or kill; only a producer's last batch is known afterwards.

        Not even that, as in Kafka, when it lies below the log start: snapshots there are deleted.
        """
        self.world.reopen(clean=is_clean)
        self.sent = [sent for sent in self.sent[-1:] if sent[1] >= self.naive.start_offset]

    @invariant()
    def agrees(self) -> None:
        """Offsets and everything reliability.md asks of one log."""
        assert self.world.log.log_end_offset == self.naive.end_offset
        assert self.world.log.log_start_offset == self.naive.start_offset
        check_invariants(self.world.log)


LogMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestLog = LogMachine.TestCase
