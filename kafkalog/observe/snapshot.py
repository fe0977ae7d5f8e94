"""Snapshot: what a scrape asks the rest of the daemon for, at one moment; no disk behind it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.observe.partition_rows import PartitionSample


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
    """Bytes of a topic that a rule of retention would let go now."""

    topic: str
    reason: str
    size_bytes: int


class Snapshot(NamedTuple):
    """See the module.

    topics          partitions of each topic, by name
    partitions      of those are served
    samples         makes the samples of the served partitions, one by one
    """

    topics: Mapping[str, int]
    partitions: int
    offline_partitions: int
    log_dirs: Sequence[LogDirSample]
    deletable: Sequence[DeletableSample]
    samples: Callable[[], Iterator[PartitionSample]]


def _no_samples() -> Iterator[PartitionSample]:
    return iter(())


EMPTY_SNAPSHOT = Snapshot({}, 0, 0, (), (), _no_samples)
