"""The v2 produce body: typed decode in C, then columns; no Python statement per record.

msgspec checks shape, types and base64; the envelope kernel before it refuses what msgspec would let
pass (duplicate keys, invalid UTF-8 inside skipped values, depth, NaN). JSON values keep their text.
"""

from __future__ import annotations

import datetime
import operator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from kafkalog.server.error_map import ApiError
from kafkalog.server.media_types import EmbeddedFormat
from kafkalog.server.schemas import check_json

if TYPE_CHECKING:
    from collections.abc import Sequence

INT32_MAX = 2**31 - 1
_NULL_TEXT = {b"null": None, b"": None}  # an absent Raw is empty


class HeaderEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record header; value is base64 or null."""

    key: str
    value: bytes | None = None


class BinaryRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Key and value in base64."""

    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Key and value are any JSON; their text is what is stored."""

    key: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


class TextRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Key and value are strings, stored as UTF-8 without quotes."""

    key: str | None = None
    value: str | None = None
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


_DECODERS: dict[EmbeddedFormat, msgspec.json.Decoder[Any]] = {
    EmbeddedFormat.BINARY: msgspec.json.Decoder(BinaryBody),
    EmbeddedFormat.JSON: msgspec.json.Decoder(JsonBody),
    EmbeddedFormat.TEXT: msgspec.json.Decoder(TextBody),
}
_KEY, _VALUE = operator.attrgetter("key"), operator.attrgetter("value")
_PARTITION, _TIMESTAMP = operator.attrgetter("partition"), operator.attrgetter("timestamp")
_HEADERS = operator.attrgetter("headers")


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Parallel sequences, one entry a record. partitions, headers: None when no record has any."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    partitions: Sequence[int | None] | None
    timestamps_ms: Sequence[int] | None
    headers: Sequence[Sequence[tuple[bytes, bytes | None]]] | None

    def __len__(self) -> int:
        return len(self.values)


def decode(
    data: bytes, embedded: EmbeddedFormat, *, now_ms: int, max_records: int
) -> DecodedRecords:
    """The records of a produce body; ApiError 400 (no JSON, bad base64) or 422 (wrong shape)."""
    check_json(data)
    try:
        body = _DECODERS[embedded].decode(data)
    except msgspec.ValidationError as error:
        raise _shape_error(str(error)) from error
    except msgspec.DecodeError as error:
        raise ApiError(400, f"The body is not acceptable JSON: {error}") from error
    records = body.records
    if not records:
        raise ApiError(422, "'records' must hold at least one record.")
    if len(records) > max_records:
        raise ApiError(42214, f"A request may hold {max_records} records at most.")
    keys, values = _bytes(map(_KEY, records), embedded), _bytes(map(_VALUE, records), embedded)
    partitions: list[int | None] | None = list(map(_PARTITION, records))
    if partitions.count(None) == len(partitions):  # type: ignore[union-attr] # list just above
        partitions = None
    return DecodedRecords(
        keys=keys,
        values=values,
        partitions=_checked_partitions(partitions),
        timestamps_ms=_timestamps(list(map(_TIMESTAMP, records)), now_ms),
        headers=_header_pairs(list(map(_HEADERS, records))),
    )


def _shape_error(text: str) -> ApiError:
    if "base64" in text:
        return ApiError(400, f"A key, value or header is no valid base64: {text}")
    if "unknown field" in text:
        text = text.replace("Object contains unknown field", "Unrecognized field:")
    return ApiError(422, text, validation_errors=(text,))


def _bytes(column: Any, embedded: EmbeddedFormat) -> list[bytes | None]:  # noqa: ANN401 - a map
    """A column of keys or values as bytes or None, by C-level maps only."""
    if embedded is EmbeddedFormat.BINARY:
        return list(column)
    if embedded is EmbeddedFormat.JSON:
        texts = list(map(bytes, column))
        return list(map(_NULL_TEXT.get, texts, texts))
    strings = list(column)
    if None not in strings:
        return list(map(str.encode, strings))
    encoded = list(map(str.encode, map({None: ""}.get, strings, strings)))
    is_null = map(operator.is_, strings, repeat(None))
    return list(map(_choose, is_null, encoded))


def _choose(is_null: bool, encoded: bytes) -> bytes | None:
    """Only texts with nulls among them come here."""
    return None if is_null else encoded


def _checked_partitions(partitions: list[int | None] | None) -> list[int | None] | None:
    if partitions is None:
        return None
    named = [p for p in set(partitions) if p is not None]
    if min(named) < 0 or max(named) > INT32_MAX:
        raise ApiError(422, "partition must be a number from 0 to 2147483647.")
    return partitions


def _timestamps(column: list[int | str | None], now_ms: int) -> list[int] | None:
    """Milliseconds a record; None when no record brings its own (then all are now)."""
    kinds = set(map(type, column))
    if kinds == {type(None)}:
        return None
    if str in kinds:
        column = [_iso_ms(t) if isinstance(t, str) else t for t in column]
    stamps = list(map({None: now_ms}.get, column, column))
    least, most = min(stamps), max(stamps)  # type: ignore[type-var] # strings and None are gone
    if least < -1 or most > 2**63 - 1:  # type: ignore[operator] # likewise
        raise ApiError(422, "timestamp must be milliseconds since 1970 or -1.")
    return stamps  # type: ignore[return-value] # likewise


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ApiError(422, "timestamp must be milliseconds or ISO-8601 with a zone.") from None
    if moment.tzinfo is None or moment.year < 1970:
        raise ApiError(422, "timestamp must be milliseconds or ISO-8601 with a zone.")
    return int(moment.timestamp() * 1000)


def _header_pairs(
    column: list[list[HeaderEntry] | None],
) -> list[list[tuple[bytes, bytes | None]]] | None:
    """(name, value) pairs a record; None when there are none at all."""
    if not any(column):
        return None
    flat = list(chain.from_iterable(filter(None, column)))
    names = map(str.encode, map(_KEY, flat))
    pairs = iter(list(zip(names, map(_VALUE, flat), strict=True)))
    counts = map(len, map({None: ()}.get, map(_none_if_empty, column), column))
    return [list(_take(pairs, count)) for count in counts]
