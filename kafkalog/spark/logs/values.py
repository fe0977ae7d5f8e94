"""Values and errors of everything that reads logs. Pickled with tasks: values only.

Offsets are Kafka's: a range is half open, and may hold fewer records than offsets (compaction,
control batches, aborted transactions). Times are ms since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.errors import CorruptData, KafkalogError

if TYPE_CHECKING:
    from kafkalog.client.messages import Basic, Bearer, Tls


CHUNK_BYTES = 8 << 20
"""Of log in one read: from 1 to 8 MiB are as good in files, 8 are better over HTTP."""


TARGET_BYTES = 128 << 20
"""Of log in a piece: a task costs Spark up to a tenth of a second."""


class OffsetRange(NamedTuple):
    """``from_offset <= offset < to_offset`` of one partition."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.from_offset}, {self.to_offset})"


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads.

    place           absolute path of the partition's directory, or the URL of a daemon, as it was
                    when it was planned: a partition may have moved since, and is then looked up
    start_position  (segment's base offset, byte in it) where the range was found to begin, None
                    over HTTP; who reads looks it up again, because segments are exchanged
    size_bytes      estimate
    """

    range: OffsetRange
    place: str
    start_position: tuple[int, int] | None
    size_bytes: int


class Bounds(NamedTuple):
    """What of a partition can be read.

    end_offset: the high watermark, or for read_committed the last stable offset; of a log
    directory that no daemon has open, the end of the last valid batch.
    """

    log_start_offset: int
    end_offset: int


class Chunk(NamedTuple):
    """Whole v2 batches in offset order, back to back.

    The first may begin below the range and the last end behind it: whoever wants records leaves
    out what lies outside. ``place`` and ``position`` (0 over HTTP) say where the first byte was
    read: a file or a URL, for messages.
    """

    batches: bytes | memoryview
    place: str
    position: int


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the logs; either ``paths`` or ``urls``. Pickled with every task.

    paths           log directories, absolute
    urls            daemons, ``http(s)://host:port``; several are a fleet: each partition is read
                    from the one that has its topic
    credentials     of the daemons
    tls             files in PEM, at the same paths on every machine
    read_committed  no records of open or aborted transactions
    retry_seconds   how long a daemon that does not answer is tried again
    """

    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    credentials: Basic | Bearer | None = None
    tls: Tls | None = None
    read_committed: bool = False
    retry_seconds: float = 30.0

    def __post_init__(self) -> None:
        if bool(self.paths) == bool(self.urls):
            raise ValueError("Name either log directories or daemons")


class Logs(Protocol):
    """The logs of all directories or daemons of an `Access`. One thread at a time.

    Every method may raise what reaching them raises: OSError of directories, ClientError of
    daemons. A partition that is nowhere is UnknownTopic or UnknownPartition; one that is in two
    places is AmbiguousPartition.
    """

    def topics(self) -> dict[str, list[int]]:
        """Partitions of each topic, internal topics left out; both sorted."""
        ...

    def bounds(self, topic: str, partition: int) -> Bounds:
        """From where to where it can be read at this moment."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Offset of the first record at or after a time, within the bounds; None: there is none."""
        ...

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """The range in pieces of about so many bytes of log: contiguous, in order, covering it.

        Empty for an empty range. Does not ask whether its records are still there: reading does.
        """
        ...

    def close(self) -> None:
        """Let go of connections and descriptors."""
        ...


class DataLost(KafkalogError):
    """Offsets that were asked for are no longer there, or were cut off; ``missing`` is them all.

    Everything below ``missing.from_offset`` was delivered; what lies at ``missing.to_offset`` and
    behind may be asked for.
    """

    def __init__(self, missing: OffsetRange, reason: str) -> None:
        super().__init__(f"The records of {missing} are missing: {reason}", **missing._asdict())
        self.missing = missing
        self.reason = reason

    def __reduce__(self) -> tuple[type[DataLost], tuple[OffsetRange, str]]:
        return type(self), (self.missing, self.reason)


class CorruptLog(CorruptData):
    """Bytes of a log that are no sound batch or record: never skipped.

    wanted       what was being read
    base_offset  of the batch, as far as it can be told: where the batch before it ended
    problem      in a few words
    """

    def __init__(
        self, wanted: OffsetRange, base_offset: int, problem: str, *, file: str, position: int
    ) -> None:
        super().__init__(
            f"{wanted.topic}-{wanted.partition}: the batch at offset {base_offset} is no sound "
            f"one: {problem}",
            file=file,
            position=position,
            topic=wanted.topic,
            partition=wanted.partition,
            base_offset=base_offset,
        )
        self.wanted = wanted
        self.base_offset = base_offset
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return _corrupt_log, (
            self.wanted,
            self.base_offset,
            self.problem,
            self.file,
            self.position,
        )


def _corrupt_log(
    wanted: OffsetRange, base_offset: int, problem: str, file: str, position: int
) -> CorruptLog:
    """For pickle, which knows no keyword parameters of exceptions."""
    return CorruptLog(wanted, base_offset, problem, file=file, position=position)


class UnusableLogDir(KafkalogError):
    """A log directory that is to be read is missing, or something in it cannot be."""


class AmbiguousPartition(KafkalogError):
    """Two of the log directories or daemons have the same partition, and none is the right one."""
