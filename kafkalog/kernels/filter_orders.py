"""The numbers that `record_filter.py` and its callers exchange: orders, cells, results.

Source: Kafka 4.1 `MemoryRecords.RecordFilter`; log-lifecycle.md 12.6.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalog.kernels.batch_output import OutCell


class OrderColumn(IntEnum):
    """What is to be done with each batch."""

    RETENTION = 0
    """`Retention`."""
    DISCARDS = 1
    """1: all of its records go (aborted data, a marker that may go)."""
    MARKS_EMPTY_TRANSACTION = 2
    """1: a marker whose transaction has no data left: it needs a delete horizon."""
    FLAGS_START = 3
    """`LookUpColumn.FLAGS_START`."""
    SUPERSEDED = 4
    """`LookUpColumn.SUPERSEDED`; -1 also when its keys were not looked up."""
    NEEDS_LOOK_UP = 5
    """1: its records are matched with the map, and the bit rows do not know them all."""
    INFLATES = 6
    """1: it is compressed, and only its records tell what becomes of it."""


ORDER_COLUMN_COUNT = len(OrderColumn)


class Retention(IntEnum):
    """Kafka's BatchRetention."""

    DELETE = 0
    """The batch goes, unread."""
    DELETE_EMPTY = 1
    """It goes when no record stays."""
    RETAIN_EMPTY = 2
    """Without records its header stays."""


class TombstoneRule(IntEnum):
    """What becomes of records without value."""

    PER_BATCH = 0
    """They stay until the delete horizon of their batch, which the first cleaning sets."""
    KEEP = 1
    """They stay; horizons are neither set nor read (`log.cleaner.tombstone.horizon=segment`)."""
    DROP = 2
    """They go; horizons are neither set nor read."""


class FilterCell(IntEnum):
    """What `filter_batches` is told and reports, behind the cells of `OutCell`; counts add up."""

    LATEST_OFFSET = 3
    """In: records above it stay."""
    BITS_FIRST = 4
    """In: first offset of the bit rows."""
    BITS_END = 5
    """In: behind the last offset that the bit rows know; BITS_FIRST when there are none."""
    NOW_MS = 6
    NEW_HORIZON_MS = 7
    TOMBSTONE_RULE = 8
    ROW = 9
    """Out: the row at which the call stopped."""
    RECORDS_READ = 10
    NULL_KEYS = 11
    """Dropped because they have no key."""
    SUPERSEDED = 12
    EXPIRED_TOMBSTONES = 13
    """Dropped though no later record has their key."""
    ABORTED = 14
    """Dropped with a discarded batch of data."""
    CONTROL = 15
    """Dropped with a discarded control batch."""
    PROCESSOR_LEVEL = 16
    """In: `processor.LEVEL`, or a lower one."""
    FLAGS = 17
    """Of `plan_batches`: records of uncompressed batches to look up."""
    RECORDS_MAX = 18
    """Of `plan_batches`: the most records that an uncompressed batch may hold."""
    ROOM = 19
    """Of `plan_batches`: bytes that all batches may take but for what inflated ones grow by."""


FILTER_CELL_COUNT = len(OutCell) + len(FilterCell)


class FilterStatus(IntEnum):
    """Results that are no fault."""

    DONE = 0
    OUT_FULL = 1
    """`out` is too short."""
    BAD_CRC = 2
    """The row's batch would change or go, and is damaged."""


class BatchOutcome(IntEnum):
    """What became of a batch."""

    GONE_UNREAD = 0
    """All its records are superseded, as bits or look-ups say."""
    GONE = 1
    COPIED = 2
    REBUILT = 3
    EMPTIED = 4
