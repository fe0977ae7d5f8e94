"""The records of v3's produce: from JSON to columns, and their receipts (http-api.md 1.7).

Keys and values say their own type: BINARY (base64, also when nothing is said), JSON (stored as
sent) or STRING. Receipts have the size of what was stored.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from kafkalog.log.values import LogAppendInfo
from kafkalog.server.produce_body import (
    DecodedRecords,
    assemble,
    check_documents,
    shape_errors,
    wrong_shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from kafkalog.server.appends import Results
    from kafkalog.server.record_documents import DecodedGroup

_NULL = b"null"


class V3Header(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record header; value is base64 or null."""

    key: str = msgspec.field(name="name")
    value: bytes | None = None


class V3Data(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A key or a value."""

    data: msgspec.Raw = msgspec.Raw(_NULL)
    type: str = "BINARY"


class V3Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A record; its fields are named as ``produce_body`` names them."""

    key: V3Data | None = None
    value: V3Data | None = None
    partition: int | None = msgspec.field(default=None, name="partition_id")
    timestamp: int | str | None = None
    headers: list[V3Header] | None = None


class V3Entry(V3Record, frozen=True, gc=False, kw_only=True):
    """A record of ``records:batch``."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


_RECORD = msgspec.json.Decoder(V3Record)
_KEY, _VALUE = operator.attrgetter("key"), operator.attrgetter("value")
_BASE64 = msgspec.json.Decoder(bytes | None)
_STRING = msgspec.json.Decoder(str | None)


def _json_text(data: msgspec.Raw) -> bytes | None:
    text = bytes(data)
    return None if text == _NULL else text


def _string_bytes(data: msgspec.Raw) -> bytes | None:
    text = _STRING.decode(data)
    return None if text is None else text.encode()


_READERS: dict[str, Callable[[Any], bytes | None]] = {
    "BINARY": _BASE64.decode,
    "JSON": _json_text,
    "STRING": _string_bytes,
}


@dataclass(frozen=True, slots=True)
class TypedRecords(DecodedRecords):
    """With the type of each key and value; None where a record has none."""

    key_types: list[str | None]
    value_types: list[str | None]


class V3Dialect:
    """``{"partition_id", "headers", "key": {"type", "data"}, "value", "timestamp"}``."""

    def parse(self, documents: Sequence[bytes]) -> Sequence[V3Record]:
        """See Dialect."""
        check_documents(documents)
        with shape_errors():
            return list(map(_RECORD.decode, documents))

    def columns(self, records: Sequence[V3Record], now_ms: int) -> TypedRecords:
        """See Dialect."""
        keys, key_types = _texts("key", list(map(_KEY, records)))
        values, value_types = _texts("value", list(map(_VALUE, records)))
        plain = assemble(keys, values, records, now_ms=now_ms)
        return TypedRecords(plain.columns, plain.partitions, key_types, value_types)


def _texts(part: str, cells: list[V3Data | None]) -> tuple[list[bytes | None], list[str | None]]:
    """(bytes, type) of each key or value, which ``part`` says; ApiError 400 or 422."""
    types = [None if cell is None else cell.type for cell in cells]
    unknown = set(types) - _READERS.keys() - {None}
    if unknown:
        raise wrong_shape(
            "type must be BINARY, JSON or STRING: there is no schema registry here - at "
            f"`$.{part}.type`"
        )
    with shape_errors(f" - at `$.{part}.data`"):
        return [None if cell is None else _READERS[cell.type](cell.data) for cell in cells], types


class V3Receipts:
    """Writes what v3's clients read of each record."""

    def __init__(self, cluster_id: str, topic: str) -> None:
        names = msgspec.json.encode(cluster_id), msgspec.json.encode(topic)
        head = b'"cluster_id":%b,"topic_name":%b,' % names
        self._template = (
            b"{%b" + head.replace(b"%", b"%%") + b'"partition_id":%d,"offset":%d,'
            b'"timestamp":"%b"%b%b}'
        )

    def write(self, decoded: DecodedGroup, results: Results, heads: list[bytes]) -> list[bytes]:
        """A receipt of each document, empty for one that has a fault; ``heads`` begin them."""
        lines = [b""] * results.record_count
        if decoded.records is None:
            return lines
        assert isinstance(decoded.records, TypedRecords)
        records, numbers = decoded.records, decoded.numbers.tolist()
        partitions, offsets = (column[decoded.numbers].tolist() for column in results.places())
        stamps = _iso_stamps(_stored_timestamps(decoded, results))
        keys = _sizes(b"key", records.key_types, records.columns.key_lengths)
        values = _sizes(b"value", records.value_types, records.columns.value_lengths)
        own_heads = [heads[number] for number in numbers]
        cells = zip(own_heads, partitions, offsets, stamps, keys, values, strict=True)
        for number, line in zip(numbers, map(self._template.__mod__, cells), strict=True):
            lines[number] = line
        return lines


def _stored_timestamps(decoded: DecodedGroup, results: Results) -> npt.NDArray[np.int64]:
    """Milliseconds of each record: its own, or when it was appended (LogAppendTime)."""
    assert decoded.records is not None
    stamps = np.zeros(results.record_count, np.int64)
    stamps[decoded.numbers] = decoded.records.columns.timestamps
    for batch in results.appended:
        if isinstance(batch.outcome, LogAppendInfo) and batch.outcome.log_append_time_ms >= 0:
            stamps[batch.numbers] = batch.outcome.log_append_time_ms
    return stamps[decoded.numbers]


def _iso_stamps(stamps: npt.NDArray[np.int64]) -> list[bytes]:
    """ISO-8601 in UTC, of any 64-bit number."""
    if (stamps == stamps[0]).all():
        return _iso_stamps_of(stamps[:1]) * len(stamps)
    return _iso_stamps_of(stamps)


def _iso_stamps_of(stamps: npt.NDArray[np.int64]) -> list[bytes]:
    texts = np.datetime_as_string(stamps.astype("datetime64[ms]"), timezone="UTC")
    return list(map(str.encode, texts.tolist()))


def _sizes(name: bytes, types: list[str | None], lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """``,"key":{"type","size"}`` of each record that has one."""
    templates = {
        type: b',"%b":{"type":"%b","size":%%d}' % (name, type.encode()) for type in _READERS
    }
    return [
        b"" if type is None else templates[type] % max(size, 0)
        for type, size in zip(types, lengths.tolist(), strict=True)
    ]
