"""The v2 produce body: typed decode in C, then columns; no Python statement per record.

msgspec checks shape, types and base64; the envelope kernel before it refuses what msgspec would let
pass (duplicate keys, invalid UTF-8 inside skipped values, depth, NaN). JSON values keep their text.
"""

from __future__ import annotations

import datetime
import operator
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kafkalog.format.batch_builder import FlatHeaders, RecordColumns, build_single_batch
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.server.error_map import ApiError
from kafkalog.server.media_types import EmbeddedFormat
from kafkalog.server.schemas import check_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.format.batch_builder import BuiltBatch

_NULL_TEXT = {b"null": None, b"": None}  # an absent Raw is empty


class HeaderEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record header; value is base64 or null."""

    key: str
    value: bytes | None = None


# gc=False: such an object holds no other that could lead back to it, so nobody needs to look.
class BinaryPair(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Key and value in base64."""

    key: bytes | None = None
    value: bytes | None = None


class JsonPair(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Key and value are any JSON; their text is what is stored."""

    key: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()


class TextPair(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Key and value are strings, stored as UTF-8 without quotes."""

    key: str | None = None
    value: str | None = None


class BinaryRecord(BinaryPair, frozen=True, gc=False):
    """With what else a record may bring."""

    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


class JsonRecord(JsonPair, frozen=True, gc=False):
    """With what else a record may bring."""

    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


class TextRecord(TextPair, frozen=True, gc=False):
    """With what else a record may bring."""

    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class BinaryBody(_Body, frozen=True):
    """binary."""

    records: list[BinaryRecord] = []


class JsonBody(_Body, frozen=True):
    """json."""

    records: list[JsonRecord] = []


class TextBody(_Body, frozen=True):
    """text."""

    records: list[TextRecord] = []


class BinaryPairs(_Body, frozen=True):
    """binary, keys and values alone."""

    records: list[BinaryPair] = []


class JsonPairs(_Body, frozen=True):
    """json, keys and values alone."""

    records: list[JsonPair] = []


class TextPairs(_Body, frozen=True):
    """text, keys and values alone."""

    records: list[TextPair] = []


_DECODERS: dict[EmbeddedFormat, msgspec.json.Decoder[Any]] = {
    EmbeddedFormat.BINARY: msgspec.json.Decoder(BinaryBody),
    EmbeddedFormat.JSON: msgspec.json.Decoder(JsonBody),
    EmbeddedFormat.TEXT: msgspec.json.Decoder(TextBody),
}
_PAIR_DECODERS: dict[EmbeddedFormat, msgspec.json.Decoder[Any]] = {
    EmbeddedFormat.BINARY: msgspec.json.Decoder(BinaryPairs),
    EmbeddedFormat.JSON: msgspec.json.Decoder(JsonPairs),
    EmbeddedFormat.TEXT: msgspec.json.Decoder(TextPairs),
}
_KEY, _VALUE = operator.attrgetter("key"), operator.attrgetter("value")
_PARTITION, _TIMESTAMP = operator.attrgetter("partition"), operator.attrgetter("timestamp")
_HEADERS = operator.attrgetter("headers")


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Records as columns; ``partitions``: None when no record names one, else one entry each."""

    columns: RecordColumns
    partitions: list[int | None] | None

    def __len__(self) -> int:
        return len(self.columns)


Pair = BinaryPair | JsonPair | TextPair
Record = BinaryRecord | JsonRecord | TextRecord


def parse(
    data: bytes, embedded: EmbeddedFormat, *, max_records: int
) -> Sequence[Pair] | Sequence[Record]:
    """The records of a produce body; ApiError 400 (no JSON, bad base64) or 422 (wrong shape).

    Pairs when no record brings more than key and value: most bodies, and a fifth of the time.
    """
    check_json(data)
    try:
        try:
            body = _PAIR_DECODERS[embedded].decode(data)
        except msgspec.ValidationError:  # more than pairs, or wrong: the whole shape tells
            body = _DECODERS[embedded].decode(data)
    except msgspec.ValidationError as error:
        raise _shape_error(str(error)) from error
    except msgspec.DecodeError as error:
        raise ApiError(400, f"The body is not acceptable JSON: {error}") from error
    records: list[Pair] | list[Record] = body.records
    if not records:
        raise _wrong("'records' must hold at least one record.")
    if len(records) > max_records:
        raise ApiError(42214, f"A request may hold {max_records} records at most.")
    return records


def columns_of(
    records: Sequence[Pair] | Sequence[Record], embedded: EmbeddedFormat, *, now_ms: int
) -> DecodedRecords:
    """The columns of parsed records, at least one; ApiError 422 (partition or timestamp)."""
    keys, values = _texts(map(_KEY, records), embedded), _texts(map(_VALUE, records), embedded)
    if type(records[0]) in _PAIRS:
        return DecodedRecords(RecordColumns.of(keys, values, now_ms), None)
    timestamps = _timestamps(list(map(_TIMESTAMP, records)), now_ms)
    headers = _flat_headers(list(map(_HEADERS, records)))
    columns = RecordColumns.of(keys, values, timestamps, headers)
    return DecodedRecords(columns, _partitions(list(map(_PARTITION, records))))


def single_batch(record: Pair | Record, *, now_ms: int) -> BuiltBatch | None:
    """The batch of a request's only record when key and value are all it brings, else None.

    The shorter way for the smallest request, where columns would cost more than all else.
    """
    if type(record) not in _PAIRS:
        return None
    return build_single_batch(_single_text(record.key), _single_text(record.value), now_ms)


_PAIRS = frozenset((BinaryPair, JsonPair, TextPair))


def _single_text(text: bytes | str | msgspec.Raw | None) -> bytes | None:
    """As ``_texts`` and the columns make of it."""
    if isinstance(text, msgspec.Raw):
        raw = bytes(text)
        return _NULL_TEXT.get(raw, raw)
    return text.encode() if isinstance(text, str) else text


def _shape_error(text: str) -> ApiError:
    if "base64" in text:
        return ApiError(400, f"A key, value or header is no valid base64: {text}")
    if "unknown field" in text:
        text = text.replace("Object contains unknown field", "Unrecognized field:")
    return _wrong(text)


def _wrong(text: str) -> ApiError:
    """JSON of the wrong shape."""
    return ApiError(422, text, validation_errors=(text,))


def _texts(column: Iterator[Any], embedded: EmbeddedFormat) -> list[Any]:
    """A column of keys or values: bytes or str, None for null and for what was left out."""
    if embedded is not EmbeddedFormat.JSON:
        return list(column)
    texts = list(map(bytes, column))
    return list(map(_NULL_TEXT.get, texts, texts))


def _partitions(column: list[int | None]) -> list[int | None] | None:
    named = set(column)
    named.discard(None)
    if not named:
        return None
    if min(named) < 0 or max(named) > INT32_MAX:  # type: ignore[type-var,operator] # None is gone
        raise _wrong("partition must be a number from 0 to 2147483647.")
    return column


def _timestamps(column: list[Any], now_ms: int) -> list[int] | int:
    """Milliseconds a record; one number when no record brings its own."""
    kinds = set(map(type, column))
    if kinds == {type(None)}:
        return now_ms
    if str in kinds:  # ISO-8601 is for people: a statement a record is no matter here
        column = [_iso_ms(stamp) if isinstance(stamp, str) else stamp for stamp in column]
    stamps: list[int] = list(map({None: now_ms}.get, column, column))
    if min(stamps) < -1 or max(stamps) > INT64_MAX:
        raise _wrong("timestamp must be milliseconds since 1970 or -1.")
    return stamps


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment.year < 1970:
        raise _wrong("timestamp must be milliseconds or ISO-8601 with a zone.")
    return int(moment.timestamp() * 1000)


def _flat_headers(column: list[list[HeaderEntry] | None]) -> FlatHeaders | None:
    """All headers one after the other; None when no record has any."""
    if not any(column):
        return None
    present = np.fromiter(map(bool, column), np.bool_, len(column))
    lists = list(compress(column, present.tolist()))
    counts = np.zeros(len(column), np.int64)
    counts[present] = np.fromiter(map(len, lists), np.int64, len(lists))  # type: ignore[arg-type] # None is left out
    flat = list(chain.from_iterable(lists))  # type: ignore[arg-type] # likewise
    return FlatHeaders(counts, list(map(str.encode, map(_KEY, flat))), list(map(_VALUE, flat)))
