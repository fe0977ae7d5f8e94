"""The one table from media type to writer for records of one or several partitions (N4, N5).

A page is collected and sent whole; a stream is sent as it is written and follows the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalog.format.wire.record_text import ArrayRecords, EventRecords, LineRecords
from kafkalog.server.arrow import arrow_records
from kafkalog.server.media_types import ARROW, EVENT_STREAM, JSON, NDJSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.format.wire.record_writer import (
        Bounds,
        RecordShape,
        StreamWriter,
        WriterFactory,
    )


class StreamWriterFactory(Protocol):
    """A WriterFactory of streams."""

    def __call__(
        self, shape: RecordShape, bounds: Bounds, *, max_decompressed_bytes: int
    ) -> StreamWriter:
        """A writer for one answer."""
        ...


PAGES: Mapping[str, WriterFactory] = {JSON: ArrayRecords, ARROW: arrow_records}
STREAMS: Mapping[str, StreamWriterFactory] = {NDJSON: LineRecords, EVENT_STREAM: EventRecords}

OFFERED = (JSON, *STREAMS, ARROW)
"""In our order of preference, which decides when Accept leaves it open."""

COMPRESSIBLE = frozenset((JSON, NDJSON))
"""Gzip is worth it when it is accepted, and does not hold up what has to arrive now."""
