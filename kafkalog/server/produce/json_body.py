"""Records in JSON, of v2 and native bodies: msgspec decodes them, then they become columns.

No Python statement runs per record. msgspec checks shape, types and base64; a kernel first refuses
what msgspec accepts (duplicate keys, invalid UTF-8 in skipped values, depth, NaN). JSON values keep
their text. Keys and values may have different formats.

The documents of a stream are decoded together. When one of a group is invalid, the group is decoded
again one by one, off the event loop, and each invalid document has its own error.
"""

from __future__ import annotations

import functools
import operator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_builder import FlatHeaders, RecordColumns, build_single_batch
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.timestamps import iso_ms
from kafkalog.format.wire.json_documents import Lines
from kafkalog.server.protocol.bodies import NotJson, check_json, refuse_empty
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EmbeddedFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from kafkalog.format.records.batch_builder import BuiltBatch


T = TypeVar("T")
Shape = type[msgspec.Struct]

_NULL_TEXT = {b"null": None, b"": None}  # an absent Raw is empty


class Formats(NamedTuple):
    """The formats of keys and values in JSON."""

    key: EmbeddedFormat
    value: EmbeddedFormat


class HeaderEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record header; value is base64 or null."""

    key: str
    value: bytes | None = None


# gc=False: such an object cannot be part of a reference cycle.
class Pair(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """Key and value; the types derived from this one add them in their formats."""


class Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """With what else a record may bring."""

    partition: int | None = None
    timestamp: int | str | None = None
    headers: list[HeaderEntry] | None = None


AnyRecord = Pair | Record


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


_MEMBERS: dict[EmbeddedFormat, tuple[Any, Any]] = {  # type and default
    EmbeddedFormat.BINARY: (bytes | None, None),
    EmbeddedFormat.JSON: (msgspec.Raw, msgspec.Raw()),
    EmbeddedFormat.TEXT: (str | None, None),
}
_KEY, _VALUE = operator.attrgetter("key"), operator.attrgetter("value")
_PARTITION, _TIMESTAMP = operator.attrgetter("partition"), operator.attrgetter("timestamp")
_HEADERS = operator.attrgetter("headers")


class _Decoders(NamedTuple):
    """Of records that are pairs alone, most of them, in a fifth of the time; and of any."""

    pairs: msgspec.json.Decoder[Any]
    records: msgspec.json.Decoder[Any]


def _shape(formats: Formats, base: Shape) -> Shape:
    """``base`` with key and value of these formats."""
    members = [("key", *_MEMBERS[formats.key]), ("value", *_MEMBERS[formats.value])]
    return msgspec.defstruct(base.__name__, members, bases=(base,), frozen=True, gc=False)


def _body_of(shape: Shape) -> object:
    members: list[tuple[str, Any, Any]] = [("records", _list_of(shape), [])]
    return msgspec.defstruct("Body", members, bases=(_Body,), frozen=True)


def _list_of(shape: Shape) -> object:
    return list[shape]  # type: ignore[valid-type] # a type made at run time


def _one(shape: Shape) -> object:
    return shape


@functools.cache
def _decoders(formats: Formats, container: Callable[[Shape], object]) -> _Decoders:
    """Of a body that holds its records so: ``_body_of`` them, a ``_list_of`` them, or ``_one``."""
    kinds = (cast("type[Any]", container(_shape(formats, base))) for base in (Pair, Record))
    return _Decoders(*map(msgspec.json.Decoder, kinds))


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Records as columns; ``partitions``: -1 where a record names none, None when none does."""

    columns: RecordColumns
    partitions: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.columns)


def parse(data: bytes, formats: Formats, *, max_records: int) -> Sequence[AnyRecord]:
    """The records of a v2 body; ApiError 400 (no JSON, bad base64) or 422 (wrong shape)."""
    check_json(data)
    decoders = _decoders(formats, _body_of)
    records: list[AnyRecord]
    try:
        records = decoders.pairs.decode(data).records
    except msgspec.DecodeError:  # further members, or an error: the full type decides
        with shape_errors():
            records = decoders.records.decode(data).records
    if not records:
        raise wrong_shape("'records' must hold at least one record.")
    _refuse_many(len(records), max_records)
    return records


def parse_array(data: bytes, formats: Formats, *, max_records: int) -> Sequence[AnyRecord]:
    """The records of a JSON array, none or more; errors as ``parse``."""
    refuse_empty(data)
    check_json(data, opening=b'{"records":', closing=b"}")
    try:
        records: list[AnyRecord] = _decoded(
            lambda decoder: decoder.decode(data), _decoders(formats, _list_of)
        )
    except ApiError as error:
        if not data.lstrip().startswith(b"{"):
            raise
        raise wrong_shape(
            "The body is an array of records: put [ and ] around an object, or send objects one a "
            "line as application/x-ndjson."
        ) from error
    _refuse_many(len(records), max_records)
    return records


def parse_lines(data: bytes, formats: Formats, *, max_records: int) -> Sequence[AnyRecord]:
    """A record of each line, none or more; errors as ``parse``, with the first bad one's index."""
    lines = Lines()
    documents = [*lines.feed(data), *lines.finish()]
    _refuse_many(len(documents), max_records)
    try:
        return parse_documents(documents, formats) if documents else ()
    except ApiError:
        for index, document in enumerate(documents):
            try:
                parse_documents((document,), formats)
            except ApiError as error:
                error.details = {**error.details, "index": index}
                raise
        raise


def parse_documents(documents: Sequence[bytes], formats: Formats) -> Sequence[AnyRecord]:
    """A record of each document; errors as ``parse``, of any of them."""
    check_documents(documents)
    records: list[AnyRecord] = _decoded(
        lambda decoder: list(map(decoder.decode, documents)), _decoders(formats, _one)
    )
    return records


def check_documents(documents: Sequence[bytes]) -> None:
    """``check_json`` of documents that their decoder then takes for one each.

    They are checked as the records of one body, so that the content of keys and values is skipped.
    """
    check_json(b",".join(documents), opening=b'{"records":[', closing=b"]}")


def _decoded(decode: Callable[[msgspec.json.Decoder[Any]], T], decoders: _Decoders) -> T:
    with shape_errors():
        try:
            return decode(decoders.pairs)
        except msgspec.ValidationError:  # further members, or an error: the full type decides
            return decode(decoders.records)


@contextmanager
def shape_errors(where: str = "") -> Iterator[None]:
    """What msgspec refuses as the register has it: 400 or 422.

    ``where`` is added in its words when a part of a record is decoded, whose place it cannot know.
    """
    try:
        yield
    except msgspec.ValidationError as error:
        raise _shape_error(f"{error}{where}") from error
    except msgspec.DecodeError as error:
        raise NotJson(str(error)) from error


def _refuse_many(count: int, max_records: int) -> None:
    if count > max_records:
        raise ApiError(42214, f"A request may hold {max_records} records at most.")


def columns_of(records: Sequence[AnyRecord], formats: Formats, *, now_ms: int) -> DecodedRecords:
    """The columns of parsed records, at least one; ApiError 422 (partition or timestamp)."""
    keys = _texts(map(_KEY, records), formats.key)
    values = _texts(map(_VALUE, records), formats.value)
    if isinstance(records[0], Pair):
        return DecodedRecords(RecordColumns.of(keys, values, now_ms), None)
    return assemble(keys, values, records, now_ms=now_ms)


def assemble(
    keys: Sequence[bytes | str | None],
    values: Sequence[bytes | str | None],
    records: Sequence[object],
    *,
    now_ms: int,
) -> DecodedRecords:
    """The columns of keys, values and what else records bring, in fields named as Record's.

    ApiError 422 (partition or timestamp).
    """
    timestamps = _timestamps(list(map(_TIMESTAMP, records)), now_ms)
    headers = _flat_headers(list(map(_HEADERS, records)))
    columns = RecordColumns.of(keys, values, timestamps, headers)
    return DecodedRecords(columns, _partitions(list(map(_PARTITION, records))))


def single_batch(record: AnyRecord, *, now_ms: int) -> BuiltBatch | None:
    """The batch of a request's only record when key and value are all it brings, else None.

    The shorter way for the smallest request, where columns would cost more than all else.
    """
    if not isinstance(record, Pair):
        return None
    return build_single_batch(_single_text(_KEY(record)), _single_text(_VALUE(record)), now_ms)


def _single_text(text: bytes | str | msgspec.Raw | None) -> bytes | None:
    """As ``_texts`` and the columns make of it."""
    if isinstance(text, msgspec.Raw):
        raw = bytes(text)
        return _NULL_TEXT.get(raw, raw)
    return text.encode() if isinstance(text, str) else text


_FIELDS = ("records", *Pair.__struct_fields__, *Record.__struct_fields__, "key", "value", "name")


def _shape_error(text: str) -> ApiError:
    if "base64" in text:
        return ApiError(400, f"A key, value or header is no valid base64: {text}")
    if "unknown field" in text:
        unknown = text.partition("`")[2].partition("`")[0]
        text = text.replace("Object contains unknown field", "Unrecognized field:")
        text += did_you_mean(unknown, _FIELDS)
    return wrong_shape(text)


def wrong_shape(text: str) -> ApiError:
    """JSON of the wrong shape."""
    return ApiError(422, text, validation_errors=(text,))


def _texts(column: Iterator[Any], embedded: EmbeddedFormat) -> list[Any]:
    """A column of keys or values: bytes or str, None for null and for what was left out."""
    if embedded is not EmbeddedFormat.JSON:
        return list(column)
    texts = list(map(bytes, column))
    return list(map(_NULL_TEXT.get, texts, texts))


def _partitions(column: list[int | None]) -> npt.NDArray[np.int64] | None:
    named = set(column)
    named.discard(None)
    if not named:
        return None
    if min(named) < 0 or max(named) > INT32_MAX:  # type: ignore[type-var,operator] # None is gone
        raise wrong_shape("partition must be a number from 0 to 2147483647.")
    unnamed: dict[int | None, int | None] = {None: -1}
    return np.fromiter(map(unnamed.get, column, column), np.int64, len(column))


def _timestamps(column: list[Any], now_ms: int) -> list[int] | int:
    """Milliseconds a record; one number when no record brings its own."""
    kinds = set(map(type, column))
    if kinds == {type(None)}:
        return now_ms
    if str in kinds:  # ISO-8601 is for people: a statement a record is no matter here
        column = [_iso_ms(stamp) if isinstance(stamp, str) else stamp for stamp in column]
    stamps: list[int] = list(map({None: now_ms}.get, column, column))
    if min(stamps) < -1 or max(stamps) > INT64_MAX:
        raise wrong_shape("timestamp must be milliseconds since 1970 or -1.")
    return stamps


def _iso_ms(text: str) -> int:
    moment_ms = iso_ms(text)
    if moment_ms is None:
        raise wrong_shape("timestamp must be milliseconds or ISO-8601 with a zone.")
    return moment_ms


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


R = TypeVar("R")


class Dialect(Protocol[R]):
    """The JSON form of a record. Both raise ApiError when any document is invalid.

    Records that go into columns together were parsed together.
    """

    def parse(self, documents: Sequence[bytes]) -> Sequence[R]:
        """A record of each document."""

    def columns(self, records: Sequence[R], now_ms: int) -> DecodedRecords:
        """Their columns; at least one record."""


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


Fault = KafkalogError | ApiError
