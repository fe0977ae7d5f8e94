"""The metric families of partitions, under kafkalog's and under Kafka's names.

Owns names, help and how the partitions of a topic are summed where ``metrics.partition.level`` (or
the number of partitions) selects topics. Internal topics are always summed: ``__consumer_offsets``
alone has 50 partitions, and no operator acts on one of them. Both sets of names are computed from
the same sample, so that they agree. ``Snapshot`` is what one scrape reads of the rest of the
daemon; no disk.
"""

from __future__ import annotations

import enum
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.topic_names import is_internal
from kafkalog.observe.exposition import RowFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.observe.group_metrics import GroupSample

    Join = Callable[[float, float], float]


class PartitionSample(NamedTuple):
    """The published facts of one partition at one moment; None: there is no such thing.

    ``*_s`` are wall-clock seconds. ``partition`` is None in the sum over a topic.
    """

    topic: str
    partition: int | None
    size_bytes: float
    segments: float
    start_offset: float | None
    end_offset: float | None
    high_watermark: float | None
    records: float | None = None
    oldest_s: float | None = None
    newest_s: float | None = None
    dirty_ratio: float | None = None
    dirty_bytes: float | None = None
    uncleanable_bytes: float | None = None
    last_success_s: float | None = None
    tombstone_batches: float | None = None
    next_horizon_s: float | None = None
    archive_lag: float | None = None
    archive_lag_bytes: float | None = None
    archive_lag_s: float | None = None
    archive_held_segments: float | None = None
    archive_held_bytes: float | None = None
    lost_offsets: float | None = None


# Name, field, and how the values of a topic's partitions are combined; None: not at all.
_FAMILIES: tuple[tuple[str, str, Join | None, str], ...] = (
    ("log_size_bytes", "size_bytes", add, "Bytes in the partition's segments."),
    ("log_segments", "segments", add, "Segments of the partition."),
    ("log_start_offset", "start_offset", None, "First offset that can be read."),
    ("log_end_offset", "end_offset", None, "Offset of the next record appended."),
    ("log_high_watermark", "high_watermark", None, "Offset up to which readers see records."),
    ("log_records", "records", add, "Readable records at the last count, without transaction "
     "markers; never more than readable offsets. Absent until the partition was counted."),
    ("log_oldest_record_timestamp_seconds", "oldest_s", min,
     "First timestamp of the first batch with readable records, even if the log start is "
     "after that record; absent if there is none or the batch cannot be read."),
    ("log_newest_record_timestamp_seconds", "newest_s", max,
     "Largest timestamp of a record; absent if there is none."),
    ("cleaner_dirty_ratio", "dirty_ratio", max, "Share of cleanable bytes at the last check."),
    ("cleaner_dirty_bytes", "dirty_bytes", add, "Cleanable bytes at the last check."),
    ("cleaner_uncleanable_bytes", "uncleanable_bytes", add,
     "Cleanable bytes while an error prevents cleans of the log, else 0."),
    ("cleaner_last_success_timestamp_seconds", "last_success_s", min,
     "Time of the last successful clean since the start."),
    ("cleaner_tombstone_batches", "tombstone_batches", add, "Batches with tombstones or markers "
     "that the last clean retained until their delete horizon."),
    ("cleaner_next_horizon_timestamp_seconds", "next_horizon_s", min,
     "Earliest delete horizon of a batch with tombstones or markers; absent if there is none."),
    ("archive_lag_offsets", "archive_lag", add,
     "Offsets that readers see and the archive does not have yet, with archive.hold."),
    ("archive_lag_bytes", "archive_lag_bytes", add,
     "About how many bytes of log the archive does not have yet, with archive.hold."),
    ("archive_lag_seconds", "archive_lag_s", max, "For how long the oldest record that "
     "the archive does not have can be read, since the start of the daemon at most; 0: there is "
     "none. With archive.hold."),
    ("archive_held_segments", "archive_held_segments", add,
     "Segments over their limits that archive.hold retained at the last check."),
    ("archive_held_bytes", "archive_held_bytes", add, "Bytes of the segments that archive.hold "
     "retained at the last check."),
    ("log_lost_offsets", "lost_offsets", add, "Lost offsets that are refused until the loss is "
     "accepted, as far as the start and reads found them; absent if there are none."),
)  # fmt: skip
PARTITION_FAMILIES = tuple(
    RowFamily(f"kafkalog_{name}", field, text) for name, field, _, text in _FAMILIES
)
_JOINS = {field: join for _, field, join, _ in _FAMILIES if join is not None}
_IN_ORDER = tuple(_JOINS.get(name) for name in PartitionSample._fields[2:])

# The JMX exporter's names with Strimzi's rules (checked against a live one).
KAFKA_ALIASES: tuple[RowFamily, ...] = tuple(
    RowFamily(f"kafka_log_log_{name}", field, f"Kafka's kafka.log:type=Log,name={bean}.")
    for name, field, bean in (
        ("size", "size_bytes", "Size"),
        ("numlogsegments", "segments", "NumLogSegments"),
        ("logstartoffset", "start_offset", "LogStartOffset"),
        ("logendoffset", "end_offset", "LogEndOffset"),
    )
)

KAFKA_EXPORTER_NAMES: tuple[RowFamily, ...] = (
    RowFamily(
        "kafka_topic_partition_current_offset", "high_watermark", "As kafka_exporter names it."
    ),
    RowFamily("kafka_topic_partition_oldest_offset", "start_offset", "As kafka_exporter names it."),
)


def of_topics(families: Iterable[RowFamily]) -> list[RowFamily]:
    """Those that have a meaning for a whole topic."""
    return [each for each in families if each.field in _JOINS]


def joined(one: PartitionSample, other: PartitionSample) -> PartitionSample:
    """Two samples of a topic as one of both; records are known when those of both are."""
    values: list[float | None] = []
    for join, here, there in zip(_IN_ORDER, one[2:], other[2:], strict=True):
        if join is None:
            values.append(None)
        elif here is None or there is None:
            values.append(there if here is None else here)
        else:
            values.append(join(here, there))
    sample = PartitionSample._make((one.topic, None, *values))
    is_counted = one.records is not None and other.records is not None
    return sample if is_counted else sample._replace(records=None)


def with_internal_summed(samples: Iterable[PartitionSample]) -> Iterator[PartitionSample]:
    """Those of internal topics as one a topic, after all others."""
    sums: dict[str, PartitionSample] = {}
    for sample in samples:
        if not is_internal(sample.topic):
            yield sample
            continue
        known = sums.get(sample.topic)
        sums[sample.topic] = _alone(sample) if known is None else joined(known, sample)
    yield from sums.values()


def _alone(sample: PartitionSample) -> PartitionSample:
    """The sum over a topic of which no other partition is known yet."""
    values = zip(_IN_ORDER, sample[2:], strict=True)
    kept = [None if join is None else value for join, value in values]
    return PartitionSample._make((sample.topic, None, *kept))


class BrokerState(enum.Enum):
    """Kafka's words for the phases of a broker's life, and its numbers for them."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class LogDirSample(NamedTuple):
    """One entry of ``log.dirs``; what its start has left to do."""

    path: str
    is_online: bool
    remaining_logs: int = 0
    remaining_segments: int = 0


class DeletableSample(NamedTuple):
    """Bytes of a topic that a rule of retention would delete now."""

    topic: str
    reason: str
    size_bytes: int


class Snapshot(NamedTuple):
    """See the module.

    topics          partitions of each topic, by name
    partitions      of those are served
    samples         makes the samples of the served partitions, one by one
    groups          the lags of consumer groups, by group and topic
    """

    topics: Mapping[str, int]
    partitions: int
    offline_partitions: int
    log_dirs: Sequence[LogDirSample]
    deletable: Sequence[DeletableSample]
    samples: Callable[[], Iterator[PartitionSample]]
    groups: Sequence[GroupSample] = ()


EMPTY_SNAPSHOT = Snapshot({}, 0, 0, (), (), lambda: iter(()))
