"""From the documents of a stream to records in columns, each document with a fault of its own.

All of a group are decoded together, in C; only a group that holds a bad document is looked at one
by one, away from the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from kafkalog.server.error_map import ApiError
from kafkalog.server.produce_body import AnyRecord, DecodedRecords, columns_of, parse_documents
from kafkalog.server.schemas import NotJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kafkalog.server.appends import Fault
    from kafkalog.server.produce_body import Formats

R = TypeVar("R")


class Dialect(Protocol[R]):
    """How a document says a record. Both raise ApiError when any of them is wrong.

    Records that go into columns together were parsed together.
    """

    def parse(self, documents: Sequence[bytes]) -> Sequence[R]:
        """A record of each document."""
        ...

    def columns(self, records: Sequence[R], now_ms: int) -> DecodedRecords:
        """Their columns; at least one record."""
        ...


class NativeDialect:
    """``{"key", "value", "headers", "timestamp", "partition"}``, keys and values in formats."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def parse(self, documents: Sequence[bytes]) -> Sequence[AnyRecord]:
        """See Dialect."""
        return parse_documents(documents, self._formats)

    def columns(self, records: Sequence[AnyRecord], now_ms: int) -> DecodedRecords:
        """See Dialect."""
        return columns_of(records, self._formats, now_ms=now_ms)


class DecodedGroup(NamedTuple):
    """The records of some documents. ``numbers`` are those of their documents, int64[n].

    ``faults``: what is wrong with each of the others. ``is_broken``: the last document was no JSON,
    and those behind it were left out.
    """

    document_count: int
    numbers: npt.NDArray[np.int64]
    records: DecodedRecords | None  # None: no document is a record
    faults: dict[int, Fault]
    is_broken: bool = False


def decode_together(documents: Sequence[bytes], dialect: Dialect[R], now_ms: int) -> DecodedGroup:
    """Every document is a record, else ApiError."""
    records = dialect.columns(dialect.parse(documents), now_ms)
    return DecodedGroup(len(documents), np.arange(len(documents), dtype=np.int64), records, {})


def decode_each(
    documents: Sequence[bytes], dialect: Dialect[R], now_ms: int, *, ends_at_broken: bool
) -> DecodedGroup:
    """Each document by itself, so that a bad one takes no other with it."""
    numbers: list[int] = []
    faults: dict[int, Fault] = {}
    is_broken = False
    for number, document in enumerate(documents):
        try:
            dialect.parse((document,))
            numbers.append(number)
        except ApiError as fault:
            faults[number] = fault
            is_broken = ends_at_broken and isinstance(fault, NotJson)
            if is_broken:
                break
    count = len(numbers) + len(faults)
    # Together: records that are parsed alone may be of different shapes.
    records = dialect.parse([documents[number] for number in numbers])
    decoded = columns_each(records, dialect, now_ms)
    faults.update((numbers[row], fault) for row, fault in decoded.faults.items())
    kept = np.array(numbers, np.int64)[decoded.numbers]
    return DecodedGroup(count, kept, decoded.records, faults, is_broken)


def columns_each(records: Sequence[R], dialect: Dialect[R], now_ms: int) -> DecodedGroup:
    """Of records that were parsed, those that have columns; ``numbers`` are theirs."""
    count, kept = len(records), list(range(len(records)))
    faults: dict[int, Fault] = {}
    decoded: DecodedRecords | None = None
    try:
        decoded = dialect.columns(records, now_ms) if records else None
    except ApiError:
        for number, record in enumerate(records):
            try:
                dialect.columns((record,), now_ms)
            except ApiError as fault:
                faults[number] = fault
        kept = [number for number in kept if number not in faults]
        if kept:
            decoded = dialect.columns([records[number] for number in kept], now_ms)
    return DecodedGroup(count, np.array(kept, np.int64), decoded, faults)
