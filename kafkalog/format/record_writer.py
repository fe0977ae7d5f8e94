"""RecordWriter: how the records of a read become the body of an answer, whatever the format.

Owns the values that pass between who reads logs (``server/record_stream.py``) and who writes a
format: a read's batches as they lie in the segment go in, encoded chunks come out. A writer serves
one answer, keeps count over all its reads, and is used by one thread at a time: the event loop or a
pool's. It never reads a log, never waits and knows no HTTP.

One answer is ``begin()``, then for every read the chunks of ``write(read)``, then ``end()``. A
page (application/json, Arrow) is collected and sent whole; a stream (NDJSON, SSE) is sent chunk by
chunk. Neither is the writer's business. The chunks of one answer, joined, are its body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.format.format_error import FormatError
from kafkalog.format.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

AbortedRange = tuple[int, int, int]
"""(producer id, first offset, last offset), both ends inclusive."""

FIELDS = ("topic", "key", "value", "partition", "offset", "timestamp", "headers")
"""The members of a record in their order, by the names that ``fields=`` takes; in JSON headers only
where there are some."""

FORMATS = ("json", "text", "base64")
"""How JSON shows a key or a value: as the JSON text that is stored, as a string, or encoded."""

CHUNK_BYTES = 64 << 10
"""A chunk ends behind the record that takes it to this size: the bound of what a slow reader has in
memory, and of what is encoded between two turns of the event loop."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where an answer ends, over all its reads and partitions; the least one counts.

    max_records         records
    max_bytes           of keys and values together; the first record of the answer always fits
    until_timestamp_ms  the first record with this timestamp or a later one ends its partition
    """

    max_records: int = INT64_MAX
    max_bytes: int = INT64_MAX
    until_timestamp_ms: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What the client asked to see of each record.

    A format that has no choice of key and value formats (Arrow: bytes) ignores those two.
    """

    key_format: str = "text"
    value_format: str = "json"
    fields: frozenset[str] = frozenset(FIELDS)


@dataclass(frozen=True, slots=True)
class RecordRead:
    """One read of one partition.

    batches      whole batches back to back, maybe a part of one behind them, which is ignored
    from_offset  records below are not shown (the first batch may begin before)
    end_offset   records from here on are not shown: where the read ended
                 (``FetchDataInfo.next_offset``) or ``until_offset``, whichever is less
    aborted      transactions that are left out (read_committed); control batches always are
    """

    topic: str
    partition: int
    batches: bytes | memoryview
    from_offset: int
    end_offset: int
    aborted: Sequence[AbortedRange] = ()


class Chunk(NamedTuple):
    """Encoded records of one partition, maybe none.

    data          bytes to send; whole records
    record_count  records in it
    next_offset   the next wanted offset of the partition: behind the last record shown or skipped,
                  ``end_offset`` of the read once all of it was written
    is_end        a bound was reached: nothing more of this partition belongs to the answer, and
                  when it is one of max_records and max_bytes of none
    """

    data: bytes
    record_count: int
    next_offset: int
    is_end: bool


class UndecodableRecord(FormatError):
    """A stored key or value is not of the format asked for; ``part`` is "key" or "value"."""

    def __init__(self, offset: int, part: str, embedded: str) -> None:
        super().__init__(f"the {part} at offset {offset} is not {embedded}")
        self.offset = offset
        self.part = part
        self.embedded = embedded


class RecordWriter(Protocol):
    """See the module. Made for one answer by a ``WriterFactory``."""

    @property
    def count(self) -> int:
        """Records written so far, of all reads."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether max_records or max_bytes was reached: further reads would give nothing."""
        ...

    def begin(self) -> bytes:
        """What stands before the first record."""
        ...

    def write(self, read: RecordRead) -> Generator[Chunk, None, None]:
        """The records of a read in chunks of about CHUNK_BYTES; at least one, maybe empty.

        Work is done as the generator is asked, so that the caller decides when and on which thread.
        It may stop asking: it closes the generator then, and goes on with a new read from the last
        chunk's next_offset. Of one writer no two are open at a time.
        UndecodableRecord behind the chunk that ends before that record, and for damaged input
        MalformedBatch, DecompressedTooLarge or UnsupportedCompression (all of the format ring).
        """
        ...

    def end(self) -> bytes:
        """What stands behind the last record."""
        ...


class StreamWriter(RecordWriter, Protocol):
    """A writer whose answer is sent as it is written, with messages between the records."""

    positions: dict[int, int]
    """The next wanted offset of every partition; given and kept by the stream, from the start."""

    def caught_up(self, state: Mapping[str, object]) -> bytes:
        """All that is readable was sent; maybe nothing."""
        ...

    def keep_alive(self) -> bytes:
        """There was nothing to send for a while; maybe nothing."""
        ...

    def finish(self, state: Mapping[str, object]) -> bytes:
        """A bound of the request was reached; maybe nothing."""
        ...

    def fail(self, error: Mapping[str, object]) -> bytes:
        """The stream ends before its bound: the error shape, with where to go on."""
        ...


class WriterFactory(Protocol):
    """What the table of media types (``server/record_media.py``) holds for each of them."""

    def __call__(
        self, shape: RecordShape, bounds: Bounds, *, max_decompressed_bytes: int
    ) -> RecordWriter:
        """A writer for one answer."""
        ...
