"""v3 produce: records as concatenated JSON with receipts, and ``records:batch`` (1.7, 3.5).

The receipts go out on the same connection while records still come in. A document that is no JSON
ends the stream, because nothing behind it can be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import hdrs, web

from kafkalog.format.wire.json_documents import Concatenated
from kafkalog.manager.operations import Acks
from kafkalog.server.answers_produce import V3BatchAnswer, V3Receipt
from kafkalog.server.appends import (
    INLINE_BYTES,
    Terms,
    durability_header,
    prepare_for,
    refuse_unknown,
    renumbered,
    results_of,
    settle,
    submit_each,
)
from kafkalog.server.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.error_map import ApiError, error_body
from kafkalog.server.in_flight import Body
from kafkalog.server.media_types import JSON, bare_type
from kafkalog.server.parameters import ACKS, topic_of
from kafkalog.server.produce_batches import PartitionBatch, Place, make_batches
from kafkalog.server.produce_body import shape_errors
from kafkalog.server.produce_stream import ProduceStream, SettledGroup
from kafkalog.server.producer_headers import refuse_producer
from kafkalog.server.record_documents import columns_each
from kafkalog.server.replies import bytes_reply
from kafkalog.server.routes.v3 import cluster_of, v3_fault, v3_numbers
from kafkalog.server.schemas import V3BatchRequest, V3ProducedRecord, check_json
from kafkalog.server.tellers import Receipts, Summary, silent_reply
from kafkalog.server.v3_records import V3Dialect, V3Entry, V3Receipts

if TYPE_CHECKING:
    from kafkalog.server.api import Api
    from kafkalog.server.appends import Fault

ROUTES = web.RouteTableDef()
_WRITE = Access(Action.WRITE, Resource.TOPIC)
_SILENT = Answer("acks=0: nobody waited.", headers=("Kafka-Durability",))
_ERRORS = (
    *(408, 41301, 41304, 41305, 42211, 42212, 42902),
    *(50003, 50302, 50303, 50304, 50701, 50702),
)
_OK = b'"error_code":200,'
_END = b"\r\n"
_ENCODE = msgspec.json.Encoder().encode


class _Entries(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The body of ``records:batch``."""

    entries: list[V3Entry]


_ENTRIES = msgspec.json.Decoder(_Entries)


@ROUTES.post("/v3/clusters/{cluster_id}/topics/{topic}/records")
@endpoint(
    "produceRecordsV3",
    "produce",
    _WRITE,
    {
        200: Answer("A receipt each, in order.", {JSON: V3Receipt}, ("Kafka-Durability",)),
        202: _SILENT,
    },
    parameters=(ACKS,),
    body={JSON: V3ProducedRecord},
    errors=(*_ERRORS, 42206, 42903),
    is_stream=True,
)
async def produce(request: web.Request) -> web.StreamResponse:
    """Append records that come one behind the other, with or without white space between them.

    The answer to each is sent as soon as it is appended, also while others still come.
    """
    api, topic = cluster_of(request), topic_of(request)
    terms = _terms(request, api, topic)
    writer = V3Receipts(api.cluster_id, topic)
    receipts = Receipts(
        request, JSON, terms.acks, lambda group: _receipts(writer, group), is_eager=False
    )
    summary = Summary()
    teller = summary if terms.acks is Acks.NONE else receipts
    stream = ProduceStream(api, topic, terms, V3Dialect(), teller)
    fault = await stream.run(request, Concatenated())
    if receipts.is_begun:
        return await receipts.end(b"" if fault is None else _failure(fault) + _END)
    if fault is not None:
        fault = v3_fault(fault)
    if teller is summary:
        return summary.reply(request, terms.acks, fault)
    raise fault or ApiError(42206, "The body is empty: send a record or more.")


def _receipts(writer: V3Receipts, group: SettledGroup) -> bytes:
    """Of each document, in order."""
    decoded, results = group
    lines = writer.write(decoded, results, [_OK] * results.record_count)
    for number, fault in results.faults.items():
        lines[number] = _failure(fault)
    return _END.join((*lines, b""))


def _failure(fault: Fault) -> bytes:
    """What is told of a record that was not appended: the one shape of every error."""
    return _ENCODE(error_body(v3_fault(fault))[1])


@ROUTES.post("/v3/clusters/{cluster_id}/topics/{topic}/records:batch")
@endpoint(
    "produceBatchV3",
    "produce",
    _WRITE,
    {
        207: Answer("What became of each entry.", {JSON: V3BatchAnswer}, ("Kafka-Durability",)),
        202: _SILENT,
    },
    parameters=(ACKS,),
    body={JSON: V3BatchRequest},
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
        records, submitted = decoded.records, []

        async def prepared(place: Place) -> tuple[None, list[PartitionBatch]]:
            return None, [] if records is None else make_batches(records, place)

        with v3_numbers():
            _, batches = await prepare_for(api, topic, None, prepared)
        for batch in batches:
            assert records is not None
            submitted += await submit_each(api, topic, records.columns, batch, terms)
        appended = await settle(renumbered(submitted, decoded.numbers))
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
    """Of a request whose body is JSON for a topic that is there."""
    if bare_type(request.headers.get(hdrs.CONTENT_TYPE, "")) != JSON:
        raise ApiError(415, f"Send {JSON}.")
    refuse_producer(request)
    acks = ACKS.read(request)
    with v3_numbers():
        refuse_unknown(api, topic, None)
        return Terms(acks or api.operations.default_acks(topic))


def _parse_entries(data: bytes, most: int) -> list[V3Entry]:
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
