"""The values and errors of all readers of logs. Most are pickled with tasks.

A range of offsets is half open, and may have fewer records than offsets (compaction, control
batches, aborted transactions). Times are ms since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.errors import CorruptData, KafkalogError
from kafkalog.format.integers import INT64_MAX
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.secrets import CredentialsAt, SecretByValue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalog.client.messages import Basic, Bearer, Tls
    from kafkalog.format.topic_names import TopicPartition


CHUNK_BYTES = 8 << 20
"""Bytes of log in one read: in files 1 to 8 MiB are equally fast, over HTTP 8 are faster."""


TARGET_BYTES = 128 << 20
"""Bytes of log in a piece: a task of Spark takes up to a tenth of a second by itself."""


MAX_CONCURRENT_REQUESTS = 64
"""Requests of a plan at an object store: 64 of 20 ms are 3,200 a second."""


class OffsetRange(NamedTuple):
    """``from_offset <= offset < to_offset`` of one partition."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int

    def __str__(self) -> str:
        partition = f"{self.topic}-{self.partition}"
        if self.to_offset == INT64_MAX:
            return f"{partition} from offset {self.from_offset} on"
        return f"{partition} [{self.from_offset}, {self.to_offset})"


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a partition that one task reads.

    place           absolute path of the partition's directory or URL of a daemon, when it was
                    planned; a partition that has moved since is looked up
    start_position  (base offset of the segment, byte in it) where the range begins, None over HTTP;
                    the reader looks it up again, because segments are replaced
    size_bytes      estimate
    topic_id        of the topic that was planned, None if it has none: another topic may have the
                    name when the piece is read
    """

    range: OffsetRange
    place: str
    start_position: tuple[int, int] | None
    size_bytes: int
    topic_id: str | None = None

    @property
    def label(self) -> str:
        """For messages."""
        return f"{shown(self.place)}: {self.range}"


class Bounds(NamedTuple):
    """The readable offsets of a partition.

    end_offset: the high watermark, or for read_committed the last stable offset. The high watermark
    of a log directory that no daemon has open is the end of its last valid batch.
    """

    log_start_offset: int
    end_offset: int


class Chunk(NamedTuple):
    """Complete v2 batches in offset order, without gaps in memory.

    The first may begin below the range, and the last may end above it: the reader of records skips
    those outside. ``place`` (a file or URL) and ``position`` (0 over HTTP) are those of the first
    byte, for messages.
    """

    batches: bytes | memoryview
    place: str
    position: int


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the logs: either ``paths`` or ``urls``. Travels with every task.

    paths           log directories, absolute
    urls            daemons, ``http(s)://host:port``; each topic is read from the daemon that has it
    credentials     credentials for the daemons; by reference, where they travel to other machines
    tls             files in PEM, under the same paths on every machine
    read_committed  skip records of open and aborted transactions
    retry_seconds   time of the retries of requests to a daemon
    max_concurrent_requests  requests that a plan has under way at an object store
    """

    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    credentials: Basic | Bearer | CredentialsAt | None = None
    tls: Tls | None = None
    read_committed: bool = False
    retry_seconds: float = 30.0
    max_concurrent_requests: int = MAX_CONCURRENT_REQUESTS

    def __post_init__(self) -> None:
        if bool(self.paths) == bool(self.urls):
            raise ValueError("Give either log directories or daemons")

    def by_reference(self) -> Access:
        """See Referable."""
        for path in self.paths:
            if shown(path) != path:
                raise SecretByValue(
                    f"The address {shown(path)} has a password, which would stand in Spark's plan: "
                    "give the address without it, and the password in the configuration of the "
                    "store's library on each machine (environment, ~/.config/fsspec)"
                )
        if self.credentials is not None and not isinstance(self.credentials, CredentialsAt):
            raise SecretByValue(
                "The credentials are given by value, which would stand in Spark's plan: give a "
                "file or an environment variable that each machine has (CredentialsAt, "
                "--token-file, --password-file)"
            )
        return self


class Logs(Protocol):
    """The logs in all directories or daemons of an `Access`. One thread at a time.

    Every method may raise OSError for directories and ClientError for daemons. A partition that
    does not exist is UnknownTopic or UnknownPartition; one that is in two places is
    AmbiguousPartition.
    """

    def topics(self) -> dict[str, list[int]]:
        """The partitions of each topic, without internal topics; both sorted."""

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The current ids of these topics, without topics that do not exist or have none.

        Raises AmbiguousPartition if partitions of one name have different ids, CorruptData.
        """

    def bounds(self, topic: str, partition: int) -> Bounds:
        """The offsets that can be read now."""

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """The bounds of those that exist; on an object store looked up together."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time, within the bounds; None: none."""

    def all_offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The same for several partitions; on an object store looked up together."""

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """The range in pieces of about ``target_bytes`` of log, in order and without gaps.

        None for an empty range. Whether the records still exist is checked when they are read.
        """

    def all_pieces(self, ranges: Iterable[OffsetRange], target_bytes: int) -> list[Piece]:
        """The pieces of ranges, in their order, without partitions that do not exist (any more).

        On an object store they are planned together.
        """

    def close(self) -> None:
        """Close connections and descriptors."""


class DataLost(KafkalogError):
    """Requested offsets were deleted or lost; ``missing`` is their range.

    Everything below ``missing.from_offset`` was delivered; reading can continue at
    ``missing.to_offset``.
    """

    def __init__(self, missing: OffsetRange, reason: str) -> None:
        super().__init__(f"The records of {missing} are missing: {reason}", **missing._asdict())
        self.missing = missing
        self.reason = reason

    def __reduce__(self) -> tuple[type[DataLost], tuple[OffsetRange, str]]:
        return type(self), (self.missing, self.reason)


def topic_recreated(missing: OffsetRange, before_id: str, now_id: str) -> DataLost:
    """The error for a topic that was deleted, and whose name another topic has now."""
    reason = f"the topic was deleted and recreated (its id was {before_id}, it is {now_id} now)"
    return DataLost(missing, reason)


class CorruptLog(CorruptData):
    """Bytes of a log are not a valid batch or record; they are never skipped.

    wanted       the range that was read
    base_offset  base offset of the batch, or the end of the batch before it
    problem      a short description
    """

    def __init__(
        self, wanted: OffsetRange, base_offset: int, problem: str, *, file: str, position: int
    ) -> None:
        super().__init__(
            f"{wanted.topic}-{wanted.partition}: the batch at offset {base_offset} is not valid: "
            f"{problem}; 'kafkalog segments verify' shows more",
            file=file,
            position=position,
            topic=wanted.topic,
            partition=wanted.partition,
            base_offset=base_offset,
        )
        self.wanted = wanted
        self.base_offset = base_offset
        self.problem = problem

    def __reduce__(self) -> tuple[partial[CorruptLog], tuple[OffsetRange, int, str]]:
        make = partial(type(self), file=self.file, position=self.position)
        return make, (self.wanted, self.base_offset, self.problem)


class UnusableLogDir(KafkalogError):
    """A log directory is missing, or a partition in it cannot be read."""


class AmbiguousPartition(KafkalogError):
    """Two log directories or daemons have the same partition, and neither has precedence."""
