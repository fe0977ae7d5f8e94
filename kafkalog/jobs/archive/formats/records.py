"""Records with typed keys and values: their rows, and dead letters of those that do not decode.

A record is a row or a dead letter. A dead letter has its key and value as they are in the log, and
the reason; if neither key nor value decodes, that of the key. A null is a null in every format: a
tombstone is a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.format.wire.arrow_columns import HEADER_TYPE
from kafkalog.jobs.archive.formats.decoder import Framed, SchemaOutgrown, conform, hinted, short
from kafkalog.jobs.archive.formats.json_values import JsonDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.jobs.archive.formats.decoder import Decoded, Decoder

DEAD_SCHEMA = pa.schema(
    [
        ("topic", pa.utf8()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("part", pa.utf8()),
        ("reason", pa.utf8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER_TYPE)),
    ]
)
PARTS = ("key", "value")


class PartOutgrown(SchemaOutgrown):
    """``SchemaOutgrown`` of a part of records."""

    def __init__(self, part: str, outgrown: SchemaOutgrown) -> None:
        super().__init__(outgrown.type, outgrown.name)
        self.part = part


@dataclass(frozen=True, slots=True)
class RecordDecoder:
    """Decodes keys and values; None: that part stays bytes."""

    key: Decoder | None = None
    value: Decoder | None = None

    def widened(self, types: Mapping[str, pa.DataType]) -> RecordDecoder:
        """The decoder with other types of inferred parts."""
        return replace(
            self, **{part: _widened(self.decoders[part], each) for part, each in types.items()}
        )

    @property
    def decoders(self) -> Mapping[str, Decoder]:
        """The parts that are decoded, by name."""
        both = zip(PARTS, (self.key, self.value), strict=True)
        return {part: decoder for part, decoder in both if decoder is not None}

    def decode(
        self, records: pa.RecordBatch, schema: pa.Schema
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows of records in a table's schema, and the dead letters; None: there are none.

        Raises PartOutgrown.
        """
        columns = {name: records.column(name) for name in records.schema.names}
        parts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        for part, decoder in self.decoders.items():
            try:
                decoded = _decoded(decoder, columns[part], schema.field(part).type)
            except SchemaOutgrown as error:
                raise PartOutgrown(part, error) from error
            columns[part] = decoded.values
            for row in decoded.faults.keys() - reasons.keys():
                parts[row], reasons[row] = part, decoded.faults[row]
        rows = pa.RecordBatch.from_arrays([columns[each.name] for each in schema], schema=schema)
        if not reasons:
            return rows, None
        at = sorted(reasons)
        is_row = np.ones(records.num_rows, np.bool_)
        is_row[at] = False
        dead = records.take(pa.array(at))
        told = {
            "part": pa.array([parts[each] for each in at]),
            "reason": pa.array(short([reasons[each] for each in at])),
        }
        letters = [
            told[each.name] if each.name in told else dead.column(each.name) for each in DEAD_SCHEMA
        ]
        return rows.filter(pa.array(is_row)), pa.RecordBatch.from_arrays(
            letters, schema=DEAD_SCHEMA
        )


def _decoded(decoder: Decoder, column: pa.Array, wanted: pa.DataType) -> Decoded:
    decoded = decoder.decode(column)
    if not isinstance(decoder, Framed):
        decoded = hinted(column, decoded)
    return decoded._replace(values=conform(decoded.values, wanted))


def _widened(decoder: Decoder, wider: pa.DataType) -> Decoder:
    if isinstance(decoder, Framed):
        return replace(decoder, decoder=_widened(decoder.decoder, wider))
    assert isinstance(decoder, JsonDecoder), "others are never inferred"
    return replace(decoder, given=wider)


@dataclass(frozen=True, slots=True)
class DeadOffsets:
    """The offsets of a partition that are in the dead-letter table, from the table's position on.

    A run that ended between the two commits of a commit left them there.
    """

    topic: str
    partition: int
    offsets: pa.Array

    def left_out(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records of its partition without these."""
        is_dead = pc.is_in(records.column("offset"), value_set=self.offsets)
        return records.filter(pc.invert(is_dead))
