"""Producer ids and epochs for idempotent appends, and the producers of a log (http-api.md N8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from kafkalog.server.api import api_of
from kafkalog.server.produce.answers import (
    AbortedTransactionAnswer,
    ProducerAnswer,
    ProducersAnswer,
    ProducerState,
)
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Link, Resource, endpoint
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import partition_of, producer_id_of, topic_of
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import AbortTransaction, read_body
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from kafkalog.log.state.producer_state import ProducerStateEntry

ROUTES = web.RouteTableDef()
_IDEMPOTENT_WRITE = Access(Action.WRITE, Resource.CLUSTER)
_GIVEN = {
    200: Answer(
        "Durably given.",
        {JSON: ProducerAnswer},
        links=(Link("bumpProducer", {"producer_id": "$response.body#/producer_id"}),),
    )
}
_STORAGE_ERRORS = (50302, 50303, 50701)


@ROUTES.post("/v1/producers")
@endpoint("createProducer", "produce", _IDEMPOTENT_WRITE, _GIVEN, errors=_STORAGE_ERRORS)
async def create(request: web.Request) -> web.Response:
    """Allocate a new producer id, at epoch 0.

    Batches that carry it with rising sequence numbers can be sent again without harm.
    """
    api = api_of(request)
    producer = await api.blocking(api.operations.producers.allocate)
    return json_reply(ProducerAnswer(*producer))


@ROUTES.post("/v1/producers/{producer_id}:bump")
@endpoint("bumpProducer", "produce", _IDEMPOTENT_WRITE, _GIVEN, errors=_STORAGE_ERRORS)
async def bump(request: web.Request) -> web.Response:
    """Give the next epoch: from the answer on, batches of older ones are refused everywhere.

    When the epochs of an id are used up, the answer is another id at epoch 0.
    """
    api, producer_id = api_of(request), producer_id_of(request)
    producer = await api.blocking(api.operations.producers.bump, producer_id)
    return json_reply(ProducerAnswer(*producer))


@ROUTES.get("/v1/topics/{topic}/partitions/{partition}/producers")
@endpoint(
    "describeProducers",
    "logs",
    Access(Action.READ, Resource.TOPIC),
    {200: Answer("By id.", {JSON: ProducersAnswer})},
)
async def describe(request: web.Request) -> web.Response:
    """What a log remembers of its producers, as kafka-transactions.sh describe-producers shows."""
    topic, partition = topic_of(request), partition_of(request)
    entries = api_of(request).operations.producers.describe(topic, partition)
    return json_reply(ProducersAnswer(topic, partition, [_state(each) for each in entries]))


@ROUTES.post("/v1/topics/{topic}/partitions/{partition}/transactions:abort")
@endpoint(
    "abortTransaction",
    "logs",
    Access(Action.ALTER, Resource.CLUSTER),
    {200: Answer("Durably aborted.", {JSON: AbortedTransactionAnswer})},
    body={JSON: AbortTransaction},
    errors=(40908, 50003, 50010, 50302, 50303, 50304, 50701),
)
async def abort_transaction(request: web.Request) -> web.Response:
    """End a transaction that an adopted directory brought along, as kafka-transactions.sh abort.

    It is named by the offset at which it begins. Nothing takes that back.
    """
    api, topic, partition = api_of(request), topic_of(request), partition_of(request)
    wanted = await read_body(AbortTransaction, request, api)
    note_subject(request, offset=wanted.start_offset)
    aborted = await api.blocking(
        api.operations.producers.abort_transaction, topic, partition, wanted.start_offset
    )
    return json_reply(AbortedTransactionAnswer(topic, partition, *aborted))


def _state(entry: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=entry.coordinator_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        current_transaction_start_offset=entry.current_txn_first_offset,
    )
