"""Values that the manager shows to the edges: immutable, no behaviour."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.env.filesystem import DiskSpace
    from kafkalog.errors import KafkalogError
    from kafkalog.format.topic_names import TopicPartition


class Acks(enum.Enum):
    """When a produce is answered; the value is its spelling in requests and configuration."""

    ALL = "all"  # after the group-committed fdatasync
    LEADER = "1"  # when the page cache has it
    NONE = "0"  # at once

    __hash__ = object.__hash__  # enum's is Python code that runs for each request


DEFAULT_SOURCE = "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One source of a value, the one with precedence first; value is in the unit of its key."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as the admin API describes it; source uses Kafka's words.

    default     the default of the key itself, whatever is configured
    """

    name: str
    value: str | None
    default: str | None
    source: str
    type: str
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool = False

    @property
    def is_default(self) -> bool:
        """Whether it is not configured at any level."""
        return self.source == DEFAULT_SOURCE


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One step of an alteration; value None deletes the config, so that its default counts."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the admin routes show it; ``topic_id`` is the 22-character text.

    ``faults``: its partitions that are not served, by number, and why.
    """

    name: str
    topic_id: str
    partition_count: int
    is_internal: bool
    overrides: Mapping[str, str]
    configs: Sequence[ConfigEntry]
    faults: Mapping[int, KafkalogError]


@dataclass(frozen=True, slots=True)
class LogDirFault:
    """What keeps an entry of ``log.dirs`` from full service, and why.

    ``failing``: calls failed within the last minute though it is online and has space, for want of
    descriptors or memory; or one of its logs takes no appends until a restart. ``low``: an append
    was refused for which there is no room above the reserve; smaller ones are taken.
    """

    log_dir: str
    state: Literal["offline", "full", "failing", "low"]
    reason: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a readiness probe needs to know. ``offline_partitions`` are not served."""

    is_loaded: bool
    online_dirs: int
    offline_dirs: int
    partitions: int
    offline_partitions: int
    full_dirs: int  # they serve reads and deletions; appends get DiskFull
    faults: tuple[LogDirFault, ...]  # of those directories


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """A partition and the bytes of its ``.log`` files.

    ``is_future``: a copy for another directory, ``offset_lag`` offsets behind the served
    one.
    """

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One entry of ``log.dirs``; an offline one holds no partitions.

    ``state`` and ``reason`` as in LogDirFault; without a fault online, and no reason. ``space`` is
    as it was last measured, at most 10 s ago.
    """

    path: str
    is_cordoned: bool
    state: Literal["online", "low", "full", "failing", "offline"]
    reason: str | None
    space: DiskSpace
    partitions: Sequence[PartitionSize]

    @property
    def offline_reason(self) -> str | None:
        """Why it is offline; None: it is not."""
        return self.reason if self.state == "offline" else None

    @property
    def full_reason(self) -> str | None:
        """Why it refuses appends; None: it does not."""
        return self.reason if self.state == "full" else None

    @property
    def low_reason(self) -> str | None:
        """Why it refuses the larger appends; None: it does not, or refuses all."""
        return self.reason if self.state == "low" else None


class MoveState(enum.Enum):
    """How far the move of a partition to another log directory is."""

    COPYING = "copying"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  # the current log serves on where it was, if its directory does


@dataclass(frozen=True, slots=True)
class MoveStatus:
    """One move, also for some time after its end; ``reason`` of a failed or cancelled one."""

    topic_partition: TopicPartition
    source: str  # paths of log directories
    target: str
    state: MoveState
    reason: str | None
    size_bytes: int  # of the current log, which may grow
    copied_bytes: int
    offset_lag: int
    started_ms: int  # wall clock
    ended_ms: int | None


class ListedPartition(NamedTuple):
    """A partition of a topic by the topic's name; ``fault``: why it is not served, None: it is."""

    name: str
    partition: int
    fault: KafkalogError | None


@dataclass(frozen=True, slots=True)
class Loading:
    """How far a start has come; all zero before the log directories were read.

    Segments and bytes are those of the partitions begun so far; bytes count when their segment is
    done.
    """

    partitions: int
    partitions_loaded: int
    segments_to_recover: int
    bytes_to_recover: int
    bytes_recovered: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class UncleanStart:
    """What a start found that was not shut down cleanly, and what it recovered of it.

    log_dirs        directories that held logs and no clean-shutdown marker
    partitions      of these directories: their logs were recovered
    bytes_recovered read of segments that may not have been durable
    bytes_cut       of those no longer served: cut off the end of a log, or set aside
    elapsed_ms      how long the load of all directories took
    ended_ms        when it was over; wall clock
    """

    log_dirs: int
    partitions: int
    bytes_recovered: int
    bytes_cut: int
    elapsed_ms: int
    ended_ms: int
