"""v3 produce: concatenated JSON with receipts, and ``records:batch``.

Keys and values name their type: BINARY (base64, the default), JSON (stored as sent) or STRING. A
receipt has the size of what was stored, and is sent while records still arrive. A document that is
not JSON ends the stream: the start of the next one cannot be found.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from aiohttp import hdrs, web

from kafkalog.broker.operations import Acks
from kafkalog.format.wire.json_documents import Concatenated
from kafkalog.log.values import LogAppendInfo
from kafkalog.server.admin.v3 import cluster_of
from kafkalog.server.produce.append import (
    INLINE_BYTES,
    PartitionBatch,
    PartitionTarget,
    Terms,
    default_acks,
    durability_header,
    refuse_producer,
    results_of,
    settle,
    submit_group,
    with_batches,
)
from kafkalog.server.produce.json_body import (
    DecodedRecords,
    assemble,
    check_documents,
    columns_each,
    shape_errors,
    wrong_shape,
)
from kafkalog.server.produce.stream import (
    ProduceStream,
    Receipts,
    SettledGroup,
    Summary,
    silent_reply,
)
from kafkalog.server.protocol.bodies import Body, check_json
from kafkalog.server.protocol.endpoint import CLUSTER, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError, RequestError, error_of, v3_fault
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType
from kafkalog.server.protocol.media_types import JSON, bare_type, check_charset
from kafkalog.server.protocol.parameters import ACKS, topic_of
from kafkalog.server.protocol.replies import bytes_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from kafkalog.server.api import Api
    from kafkalog.server.produce.append import Results
    from kafkalog.server.produce.json_body import DecodedGroup, Fault


_NULL = b"null"


def _described(**schema: object) -> msgspec.Meta:
    """What the description says of a field beyond its type; it is not checked here."""
    return msgspec.Meta(extra_json_schema=schema)


class V3ProducedHeader(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A record header; the value is base64."""

    key: str = msgspec.field(name="name")
    value: Annotated[bytes | None, _described(contentEncoding="base64")] = None


class V3ProducedData(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A key or a value: base64, any JSON or a string, null for none."""

    data: msgspec.Raw = msgspec.Raw(_NULL)
    type: Annotated[str, _described(enum=["BINARY", "JSON", "STRING"])] = "BINARY"


class V3ProducedRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """A record of v3's produce; the body is any number of them, concatenated."""

    # The fields are named as ``json_body`` names them.
    key: V3ProducedData | None = None
    value: V3ProducedData | None = None
    partition: Annotated[int, _described(minimum=0)] | None = msgspec.field(
        default=None, name="partition_id"
    )
    timestamp: int | Annotated[str, _described(format="date-time")] | None = None
    headers: list[V3ProducedHeader] | None = None


class V3BatchEntry(V3ProducedRecord, frozen=True, gc=False, kw_only=True):
    """With a name that the answer repeats."""

    id: Annotated[
        str, msgspec.Meta(min_length=1, max_length=80), _described(minLength=1, maxLength=80)
    ]


_RECORD = msgspec.json.Decoder(V3ProducedRecord)
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


@contextmanager
def _bad_request() -> Iterator[None]:
    """A record of the wrong shape is 400, as the REST Proxy's receipts say; elsewhere it is 422."""
    try:
        yield
    except ApiError as error:
        if error.entry.error_code != 422:
            raise
        raise ApiError(400, error.message, validation_errors=error.validation_errors) from error


class V3Dialect:
    """``{"partition_id", "headers", "key": {"type", "data"}, "value", "timestamp"}``."""

    def parse(self, documents: Sequence[bytes]) -> Sequence[V3ProducedRecord]:
        """See Dialect."""
        check_documents(documents)
        with _bad_request(), shape_errors():
            return list(map(_RECORD.decode, documents))

    def columns(self, records: Sequence[V3ProducedRecord], now_ms: int) -> TypedRecords:
        """See Dialect."""
        keys, key_types = _texts("key", list(map(_KEY, records)))
        values, value_types = _texts("value", list(map(_VALUE, records)))
        with _bad_request():
            plain = assemble(keys, values, records, now_ms=now_ms)
        return TypedRecords(plain.columns, plain.partitions, key_types, value_types)


def _texts(
    part: str, cells: list[V3ProducedData | None]
) -> tuple[list[bytes | None], list[str | None]]:
    """(bytes, type) of each key or value, as ``part`` names them; ApiError 400 or 422."""
    types = [None if cell is None else cell.type for cell in cells]
    unknown = set(types) - _READERS.keys() - {None}
    if unknown:
        raise wrong_shape(
            "type must be BINARY, JSON or STRING: there is no schema registry here - at "
            f"`$.{part}.type`"
        )
    with _bad_request(), shape_errors(f" - at `$.{part}.data`"):
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
    is_one = bool((stamps == stamps[0]).all())
    written = stamps[:1] if is_one else stamps
    texts = np.datetime_as_string(written.astype("datetime64[ms]"), timezone="UTC").tolist()
    encoded = list(map(str.encode, texts))
    return encoded * len(stamps) if is_one else encoded


def _sizes(name: bytes, types: list[str | None], lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """``,"key":{"type","size"}`` of each record that has one."""
    templates = {
        type: b',"%b":{"type":"%b","size":%%d}' % (name, type.encode()) for type in _READERS
    }
    return [
        b"" if type is None else templates[type] % max(size, 0)
        for type, size in zip(types, lengths.tolist(), strict=True)
    ]


ROUTES = Routes("produce")
_SILENT = Answer("acks=0: nobody waited.", headers=("Kafka-Durability",))
_ERRORS = (
    *(408, 41301, 41304, 41305, 42211, 42212, 42902),
    *(50003, 50302, 50303, 50304, 50701, 50702),
)
_OK = b'"error_code":200,'
_END = b"\r\n"
_ENCODE = msgspec.json.Encoder().encode


class V3BatchRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``POST .../records:batch``."""

    entries: Annotated[list[V3BatchEntry], _described(minItems=1)]


_ENTRIES = msgspec.json.Decoder(V3BatchRequest)


class V3Size(AnswerBody):
    """What was stored as key or value."""

    type: Literal["BINARY", "JSON", "STRING"]
    size: int


class V3Place(AnswerBody, kw_only=True):
    """Where a record of v3 was appended; the timestamp is that in the log, in UTC."""

    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: V3Size | None = None
    value: V3Size | None = None


class V3Appended(V3Place, kw_only=True):
    """The receipt of a record that was appended."""

    error_code: Literal[200]


class V3NotAppended(RequestError, kw_only=True):
    """The receipt of a record that was not."""


V3Receipt = NamedType(
    "V3Receipt",
    V3Appended | V3NotAppended,
    "One document of the answer, which has one for each record.",
)


class V3Success(V3Place, kw_only=True):
    """An entry that was appended."""

    id: str


class V3Failure(V3NotAppended, kw_only=True):
    """An entry that was not."""

    id: str


class V3BatchAnswer(AnswerBody):
    """Both in the order of the entries."""

    successes: list[V3Success]
    failures: list[V3Failure]


@ROUTES.endpoint(
    f"POST {CLUSTER}/topics/{{topic}}/records",
    "produceRecordsV3",
    Access.WRITE_TOPIC,
    {200: Answer("A receipt each, in order.", V3Receipt, ("Kafka-Durability",)), 202: _SILENT},
    parameters=(ACKS,),
    body=V3ProducedRecord,
    errors=(*_ERRORS, 42903),
    is_stream=True,
)
async def produce(request: web.Request) -> web.StreamResponse:
    """Append concatenated records, with or without white space between them.

    The answer to each is sent as soon as it is appended, also while others still come.
    """
    api, topic = cluster_of(request), topic_of(request)
    terms = _terms(request, api, topic)
    template = V3Receipts(api.cluster_id, topic)
    receipts = Receipts(
        request, JSON, terms.acks, lambda group: _receipts(template, group), is_eager=False
    )
    summary = Summary()
    writer = summary if terms.acks is Acks.NONE else receipts
    stream = ProduceStream(api, topic, terms, V3Dialect(), writer)
    fault = await stream.run(request, Concatenated())
    if receipts.is_begun:
        return await receipts.end(b"" if fault is None else _failure(fault) + _END)
    if writer is summary:
        return summary.reply(request, terms.acks, fault)
    raise fault or ApiError(42206, "The body is empty: send a record or more.")


def _receipts(template: V3Receipts, group: SettledGroup) -> bytes:
    """Of each document, in order."""
    decoded, results = group
    lines = template.write(decoded, results, [_OK] * results.record_count)
    for number, fault in results.faults.items():
        lines[number] = _failure(fault)
    return _END.join((*lines, b""))


def _failure(fault: Fault) -> bytes:
    """The error of a record that was not appended, as every answer has it."""
    return _ENCODE(error_of(v3_fault(fault)))


@ROUTES.endpoint(
    f"POST {CLUSTER}/topics/{{topic}}/records:batch",
    "produceBatchV3",
    Access.WRITE_TOPIC,
    {207: Answer("What became of each entry.", V3BatchAnswer, ("Kafka-Durability",)), 202: _SILENT},
    parameters=(ACKS,),
    body=V3BatchRequest,
    errors=(*_ERRORS, 42208),
)
async def produce_batch(request: web.Request) -> web.StreamResponse:
    """Append up to http.max.batch.entries records, each for itself; its id is in the answer."""
    api, topic = cluster_of(request), topic_of(request)
    terms = _terms(request, api, topic)
    async with Body(request, api) as data:
        entries = _parse_entries(data, api.config.http_max_batch_entries)
        dialect, now_ms = V3Dialect(), api.operations.now_ms()
        if len(data) <= INLINE_BYTES:
            decoded = columns_each(entries, dialect, now_ms)
        else:
            decoded = await api.blocking(columns_each, entries, dialect, now_ms)

        async def prepared(target: PartitionTarget) -> tuple[DecodedGroup, list[PartitionBatch]]:
            return with_batches(decoded, target)

        _, submitted = await submit_group(api, topic, terms, prepared)
        appended = await settle(submitted)
    if terms.acks is Acks.NONE:
        return silent_reply()
    results = results_of(len(entries), appended, decoded.faults)
    ids = [_ENCODE(entry.id) for entry in entries]
    heads = [b'"id":%b,' % each for each in ids]
    receipts = V3Receipts(api.cluster_id, topic).write(decoded, results, heads)
    failures = [
        b'{"id":%b,' % ids[number] + _failure(fault)[1:]
        for number, fault in sorted(results.faults.items())
    ]
    body = b'{"successes":[%b],"failures":[%b]}' % (
        b",".join(
            receipt for number, receipt in enumerate(receipts) if number not in results.faults
        ),
        b",".join(failures),
    )
    headers = durability_header(terms.acks)
    return bytes_reply(body, content_type=JSON, status=207, headers=headers)


def _terms(request: web.Request, api: Api, topic: str) -> Terms:
    """The terms of a request with JSON for an existing topic."""
    content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
    if bare_type(content_type) != JSON:
        raise ApiError(415, f"Send {JSON}.")
    check_charset(content_type)
    refuse_producer(request)
    acks = ACKS.read(request)
    return Terms(acks or default_acks(api, topic, None))


def _parse_entries(data: bytes, most: int) -> list[V3BatchEntry]:
    """The entries of a body; ApiError 42208 when there are none, too many, or two with one id."""
    # By the name of v2 the scan knows where keys and values are, which are kept as they were sent.
    check_json(data.replace(b'"entries"', b'"records"', 1))
    with shape_errors():
        entries = _ENTRIES.decode(data).entries
    if not entries:
        raise ApiError(42208, "'entries' must hold at least one record.")
    if len(entries) > most:
        raise ApiError(42208, f"'entries' may hold {most} records (http.max.batch.entries).")
    if len({entry.id for entry in entries}) < len(entries):
        raise ApiError(42208, "Each entry has an id of its own.")
    return entries
