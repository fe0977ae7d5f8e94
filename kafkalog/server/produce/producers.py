"""Producer ids and epochs for idempotent appends, and the producers of a log."""

from __future__ import annotations

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Link, Routes
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import partition_of, producer_id_of, topic_of
from kafkalog.server.protocol.schemas import AbortTransaction
from kafkalog.server.security.audit import note_subject

ROUTES = Routes("produce")


class ProducerAnswer(AnswerBody):
    """What a producer writes into its batches."""

    producer_id: int
    producer_epoch: int


class ProducerState(AnswerBody):
    """What a log remembers of a producer; -1 is none, the timestamp is its last batch's, in ms."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int | None


class AbortedTransactionAnswer(PartitionAnswer):
    """A transaction that has ended; committed records are readable below the last stable offset."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_stable_offset: int


class ProducersAnswer(PartitionAnswer):
    """All that the log of a partition remembers."""

    producers: list[ProducerState]


_GIVEN = {
    200: Answer(
        "Durably given.",
        ProducerAnswer,
        links=(Link("bumpProducer", {"producer_id": "$response.body#/producer_id"}),),
    )
}
_STORAGE_ERRORS = (50302, 50303, 50701)


@ROUTES.endpoint(
    "POST /v1/producers", "createProducer", Access.WRITE_CLUSTER, _GIVEN, errors=_STORAGE_ERRORS
)
def create(_: web.Request, operations: Operations) -> ProducerAnswer:
    """Allocate a new producer id, at epoch 0.

    Batches that carry it with rising sequence numbers can be sent again without harm.
    """
    return ProducerAnswer(*operations.producers.allocate())


@ROUTES.endpoint(
    "POST /v1/producers/{producer_id}:bump",
    "bumpProducer",
    Access.WRITE_CLUSTER,
    _GIVEN,
    errors=_STORAGE_ERRORS,
)
def bump(request: web.Request, operations: Operations) -> ProducerAnswer:
    """Give the next epoch: from the answer on, batches of older ones are refused everywhere.

    When the epochs of an id are used up, the answer is another id at epoch 0.
    """
    return ProducerAnswer(*operations.producers.bump(producer_id_of(request)))


@ROUTES.endpoint(
    f"GET {PARTITION}/producers", "describeProducers", Access.READ_TOPIC, "By id.", tag="logs"
)
async def describe(request: web.Request) -> ProducersAnswer:
    """What a log remembers of its producers, as kafka-transactions.sh describe-producers shows."""
    topic, partition = topic_of(request), partition_of(request)
    entries = api_of(request).operations.producers.describe(topic, partition)
    producers = [
        answer_of(
            ProducerState,
            each,
            last_timestamp=each.last_timestamp_ms,
            current_transaction_start_offset=each.current_txn_first_offset,
        )
        for each in entries
    ]
    return ProducersAnswer(topic, partition, producers)


@ROUTES.endpoint(
    f"POST {PARTITION}/transactions:abort",
    "abortTransaction",
    Access.ALTER_CLUSTER,
    "Durably aborted.",
    tag="logs",
    errors=(40908, 50003, 50010, 50302, 50303, 50304, 50701),
)
def abort_transaction(
    request: web.Request, operations: Operations, wanted: AbortTransaction
) -> AbortedTransactionAnswer:
    """End a transaction that an adopted directory brought along, as kafka-transactions.sh abort.

    It is named by the offset at which it begins. Nothing takes that back.
    """
    topic, partition = topic_of(request), partition_of(request)
    note_subject(request, offset=wanted.start_offset)
    aborted = operations.producers.abort_transaction(topic, partition, wanted.start_offset)
    return AbortedTransactionAnswer(topic, partition, *aborted)
