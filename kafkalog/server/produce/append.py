"""Appends of a request: its records become a batch per partition; each record gets a result.

All produce routes share what is here: auto-creation of the topic, the topic's rules, the writer's
queue and the results in request order. Three headers name the producer of a request's records as
the header of a raw batch does: producer id, epoch and the sequence of the first record. These
records form one batch, which can be sent again. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from kafkalog.broker.operations import Acks
from kafkalog.errors import InvalidRecord, KafkalogError, RecordBatchTooLarge, UnknownTopic
from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_builder import NO_PRODUCER, ProducerStamp, build_plain_batch
from kafkalog.format.wire.json_page import write_receipt, write_receipts
from kafkalog.log.validator import faults_of_records, validate_built
from kafkalog.log.values import LogAppendInfo
from kafkalog.server.produce.json_body import Fault, columns_of, parse, single_batch
from kafkalog.server.protocol.errors import ApiError, entry_of, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import numpy.typing as npt
    from aiohttp import web

    from kafkalog.broker.catalog import OpenTopic
    from kafkalog.format.records.batch_builder import BuiltBatch, RecordColumns
    from kafkalog.log.log_config import LogConfig
    from kafkalog.server.api import Api
    from kafkalog.server.produce.json_body import DecodedGroup, DecodedRecords, Formats

    Int64s = npt.NDArray[np.int64]


CREATION_WAIT_SECONDS = 30.0
"""How long records wait for the creation of their topic: Kafka's default of request.timeout.ms."""
INLINE_BYTES = 256 << 10
"""Bodies up to here are worked on by the event loop itself."""
_INLINE_COMPRESSED_BYTES = 16 << 10
Durability = Literal["synced", "os"]
DURABILITIES: Mapping[Acks, Durability] = {Acks.ALL: "synced", Acks.LEADER: "os"}
"""What an answer's "appended" means, by the acks that it waited for."""
_KEEPS_PLAIN = ("producer", "uncompressed")

T = TypeVar("T")
Outcome = LogAppendInfo | Fault


_ONLY_RECORD = np.zeros(1, np.int64)  # the selection of a request that holds one record
_ONLY_RECORD.flags.writeable = False


class PartitionTarget(NamedTuple):
    """Where records may go: ``partition`` is the path's, if it names one."""

    partition_count: int
    partition: int | None
    null_key_partition: int


class PartitionBatch(NamedTuple):
    """The batch of one partition; ``selection`` are the request's record numbers, int64[n]."""

    partition: int
    selection: npt.NDArray[np.int64]
    built: BuiltBatch


@dataclass(slots=True)
class Terms:
    """How the records of a request are appended.

    ``expected_offset`` grows with each batch, so that there is no gap between them.
    """

    acks: Acks
    partition: int | None = None  # the path's
    expected_offset: int | None = None  # only with a partition in the path
    producer: ProducerStamp = NO_PRODUCER  # likewise, and only for one batch


def durability_header(acks: Acks) -> dict[str, str]:
    """See DURABILITIES; none with acks=0."""
    return {"Kafka-Durability": DURABILITIES.get(acks, "none")}


class Submitted(NamedTuple):
    """A batch that is on its way; ``numbers`` as in Appended."""

    partition: int
    numbers: Int64s
    outcome: asyncio.Future[LogAppendInfo] | Fault


class Appended(NamedTuple):
    """What became of a batch; ``numbers`` are the request's records in the order of offsets."""

    partition: int
    numbers: Int64s
    outcome: Outcome


class Results(NamedTuple):
    """What became of the records of a request or of a group; ``faults`` by number, of all."""

    record_count: int
    appended: list[Appended]
    faults: dict[int, Fault]

    def places(self) -> tuple[Int64s, Int64s]:
        """(partition, offset) of each record; -1 of one that was not appended."""
        partitions = np.full(self.record_count, -1, np.int64)
        offsets = np.full(self.record_count, -1, np.int64)
        for partition, numbers, outcome in self.appended:
            if isinstance(outcome, LogAppendInfo):
                first = outcome.first_offset
                partitions[numbers] = partition
                offsets[numbers] = np.arange(first, first + len(numbers))
        return partitions, offsets

    def receipts(self) -> bytes:
        """``"offsets":[...]`` in request order; only when every record was appended."""
        assert not self.faults
        if self.record_count == 1:
            ((partition, _, outcome),) = self.appended
            assert isinstance(outcome, LogAppendInfo)
            return write_receipt(partition, outcome.first_offset)
        return write_receipts(*self.places())

    def one_reason(self) -> Fault | None:
        """The error that every record met, if it is one number for all."""
        if len(self.faults) < self.record_count or not self.faults:
            return None
        reasons = {id(fault): fault for fault in self.faults.values()}
        codes = {entry_of(fault).error_code for fault in reasons.values()}
        return next(iter(reasons.values())) if len(codes) == 1 else None


def results_of(
    record_count: int, appended: list[Appended], faults: dict[int, Fault] | None = None
) -> Results:
    """``faults``: of records that are in no batch; those of the batches are added."""
    known = dict(faults or {})
    for batch in appended:
        if not isinstance(batch.outcome, LogAppendInfo):
            known.update(dict.fromkeys(batch.numbers.tolist(), batch.outcome))
    return Results(record_count, appended, known)


class Receipt(AnswerBody, kw_only=True):
    """One record of a produce; partition and offset are null when it failed."""

    partition: int | None
    offset: int | None
    error_code: int | None
    error: str | None
    message: str | None = None


def failed_receipt(fault: Fault) -> Receipt:
    """The receipt of a record that was not appended."""
    return answer_of(Receipt, error_of(fault), partition=None, offset=None)


def mixed_receipts(
    results: Results, failed: Callable[[Fault], Receipt] = failed_receipt
) -> list[Receipt]:
    """Receipts in request order when some failed: a statement a record does no harm here."""
    partitions, offsets = (column.tolist() for column in results.places())
    return [
        failed(results.faults[number])
        if number in results.faults
        else Receipt(partition=partition, offset=offset, error_code=None, error=None)
        for number, (partition, offset) in enumerate(zip(partitions, offsets, strict=True))
    ]


def prepare(
    data: bytes, formats: Formats, now_ms: int, max_records: int, target: PartitionTarget
) -> tuple[int, list[PartitionBatch]]:
    """(record count, one batch a partition) of a v2 produce body; raises as ``parse``."""
    records = parse(data, formats, max_records=max_records)
    if len(records) == 1 and (target.partition is not None or target.partition_count == 1):
        built = single_batch(records[0], now_ms=now_ms)
        if built is not None:
            return 1, [PartitionBatch(target.partition or 0, _ONLY_RECORD, built)]
    decoded = columns_of(records, formats, now_ms=now_ms)
    return len(decoded), make_batches(decoded, target)


def make_batches(
    records: DecodedRecords, target: PartitionTarget, producer: ProducerStamp = NO_PRODUCER
) -> list[PartitionBatch]:
    """Group by partition: a record's own, else the path's, else by key, else null_key_partition.

    producer    is in the header of each, so the caller passes one only for a single batch
    """
    columns = records.columns
    partition_count, partition, null_key_partition = target
    if records.partitions is None and (partition is not None or partition_count == 1):
        everything = np.arange(len(columns), dtype=np.int64)
        built = build_plain_batch(columns, everything, producer)
        return [PartitionBatch(partition or 0, everything, built)]
    if partition is not None:
        chosen = np.full(len(columns), partition, np.int64)
    else:
        chosen = columns.partitions(partition_count)
        chosen[chosen < 0] = null_key_partition
    if records.partitions is not None:
        chosen = np.where(records.partitions >= 0, records.partitions, chosen)
    batches = []
    for number in np.unique(chosen).tolist():
        selection = np.flatnonzero(chosen == number).astype(np.int64)
        built = build_plain_batch(columns, selection, producer)
        batches.append(PartitionBatch(number, selection, built))
    return batches


def default_acks(api: Api, topic: str, partition: int | None) -> Acks:
    """Acks of a produce that names none, before a body is read.

    UnknownTopic when ``prepare_for`` would say so of any body.
    """
    try:
        return api.operations.open_topic(topic).default_acks
    except UnknownTopic:
        default_count = api.operations.topics.default_partition_count
        is_outside = partition is not None and partition >= default_count
        if is_outside or not api.config.auto_create_topics_enable:
            raise
        return api.operations.broker_acks


async def prepare_for(
    api: Api,
    topic: str,
    partition: int | None,
    prepare: Callable[[PartitionTarget], Awaitable[tuple[T, list[PartitionBatch]]]],
) -> tuple[T, list[PartitionBatch], OpenTopic | None]:
    """What ``prepare`` makes for the place where records may go, and their topic.

    None: there is no topic, and nothing to append to it.

    The topic is created when the configuration says so (auto.create.topics.enable), but not for a
    body that is refused or brings nothing, nor for one that names only partitions that the new
    topic would not have. Differs from Kafka there, whose clients create it by asking for metadata
    before they know that they will refuse themselves. A topic that another request is creating is
    waited for. UnknownTopic, and what ``prepare`` raises.
    """
    operations = api.operations
    try:
        opened = await opened_topic(api, topic, partition)
    except UnknownTopic:
        if not api.config.auto_create_topics_enable:
            raise
        expected_count = operations.topics.default_partition_count
        prepared = await prepare(_target(api, None, partition, expected_count))
        batches = prepared[1]
        if not batches:
            return *prepared, None
        if all(batch.partition >= expected_count for batch in batches):
            raise
        await api.blocking(operations.topics.ensure, topic)
        opened = await opened_topic(api, topic, partition)
        if opened.partition_count == expected_count:
            return *prepared, opened
    return *await prepare(_target(api, opened, partition, opened.partition_count)), opened


async def opened_topic(api: Api, topic: str, partition: int | None) -> OpenTopic:
    """The topic with its partitions, which a creation that is under way may still have to make.

    UnknownTopic, also when the creation failed. A creation that takes longer than the wait, or than
    the daemon runs, leaves a topic whose missing partitions answer NotReady. Those who wait have
    places as waiting fetches have: ApiError 42903 when there are too many.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CREATION_WAIT_SECONDS
    while (opened := api.operations.open_topic(topic)).is_being_made(partition):
        made: asyncio.Future[None] = loop.create_future()
        wake = functools.partial(_wake, made)
        opened.logs.call_when_made(topic, wake)
        with api.delayed_fetches.stream(wake):
            await asyncio.wait((made,), timeout=deadline - loop.time())
        if not made.done() or api.stopping:
            break
    return opened


def _wake(waiter: asyncio.Future[None]) -> None:
    """By any thread."""

    def finish_waiting() -> None:
        if not waiter.done():
            waiter.set_result(None)

    with suppress(RuntimeError):  # the loop has ended, and with it the request
        waiter.get_loop().call_soon_threadsafe(finish_waiting)


def _target(
    api: Api, topic: OpenTopic | None, partition: int | None, partition_count: int
) -> PartitionTarget:
    if partition is not None:
        return PartitionTarget(partition_count, partition, partition)  # the last is not used then
    return PartitionTarget(partition_count, None, api.null_key_partition(topic, partition_count))


async def append_all(
    api: Api, topic: OpenTopic | None, batches: list[PartitionBatch], terms: Terms
) -> list[Appended]:
    """The outcome of every batch; one that fails does not affect the others. None with acks=0."""
    submitted = []
    for batch in batches:
        try:
            outcome: asyncio.Future[LogAppendInfo] | Fault = await submit(api, topic, batch, terms)
        except (KafkalogError, ApiError) as fault:
            outcome = fault
        submitted.append(Submitted(batch.partition, batch.selection, outcome))
    return [] if terms.acks is Acks.NONE else await settle(submitted)


async def submit(
    api: Api, topic: OpenTopic | None, batch: PartitionBatch, terms: Terms
) -> asyncio.Future[LogAppendInfo]:
    """Check a batch by the topic's rules and hand it to the writer.

    What the partition, the rules and the writer's queue refuse is raised here.
    """
    if terms.expected_offset is not None and batch.partition != terms.partition:
        raise ApiError(422, "With expected_offset every record goes to the partition in the path.")
    assert topic is not None, "what is to be appended has a topic"
    log = topic.log_of(batch.partition)
    try:
        arguments = batch.built, log.config, api.operations.now_ms()
        most = api.operations.max_decompressed_bytes
        if _is_short(log.config, batch):
            records = validate_built(*arguments, max_decompressed_bytes=most)
        else:
            records = await api.blocking(validate_built, *arguments, max_decompressed_bytes=most)
    except (KafkalogError, ApiError) as refusal:
        api.metrics.traffic.observe_refusal(topic.name, refusal, len(batch.built.data))
        raise
    future = api.append(log, records, terms.acks, terms.expected_offset)
    if terms.expected_offset is not None:
        terms.expected_offset += records.record_count
    return future


async def submit_each(
    api: Api, topic: OpenTopic | None, columns: RecordColumns, batch: PartitionBatch, terms: Terms
) -> list[Submitted]:
    """Submit independent records: an error fails only the records that caused it.

    A batch that is too large is split into halves; invalid records are removed from theirs.
    ``numbers`` are rows of ``columns``.
    """
    partition, rows, _ = batch
    fallen: list[Submitted] = []
    try:
        return [Submitted(partition, rows, await submit(api, topic, batch, terms))]
    except RecordBatchTooLarge as fault:
        if len(rows) == 1:
            return [Submitted(partition, rows, fault)]
        parts = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    except InvalidRecord as fault:
        bad = faults_of_records(fault)
        if not bad:
            return [Submitted(partition, rows, fault)]
        fallen = [
            Submitted(partition, rows[index : index + 1], share) for index, share in bad.items()
        ]
        parts = [np.delete(rows, list(bad))]
    except (KafkalogError, ApiError) as fault:
        return [Submitted(partition, rows, fault)]
    for part in parts:
        if len(part):
            smaller = PartitionBatch(partition, part, build_plain_batch(columns, part))
            fallen += await submit_each(api, topic, columns, smaller, terms)
    return fallen


async def submit_group(
    api: Api,
    topic: str,
    terms: Terms,
    prepare: Callable[[PartitionTarget], Awaitable[tuple[DecodedGroup, list[PartitionBatch]]]],
) -> tuple[DecodedGroup, list[Submitted]]:
    """Submit the independent records of a group, with the numbers of their documents."""
    group, batches, opened = await prepare_for(api, topic, terms.partition, prepare)
    submitted: list[Submitted] = []
    for batch in batches:
        assert group.records is not None
        submitted += await submit_each(api, opened, group.records.columns, batch, terms)
    return group, [each._replace(numbers=group.numbers[each.numbers]) for each in submitted]


def with_batches(
    group: DecodedGroup, target: PartitionTarget
) -> tuple[DecodedGroup, list[PartitionBatch]]:
    """A group and the batch of each partition."""
    return group, [] if group.records is None else make_batches(group.records, target)


async def settle(submitted: list[Submitted]) -> list[Appended]:
    """Wait until each batch is as durable as its acks require, or failed."""
    appended = []
    for partition, numbers, outcome in submitted:
        if isinstance(outcome, asyncio.Future):
            try:
                finished: Outcome = await outcome
            except KafkalogError as fault:
                finished = fault
        else:
            finished = outcome
        appended.append(Appended(partition, numbers, finished))
    return appended


def _is_short(config: LogConfig, batch: PartitionBatch) -> bool:
    """Whether validation, perhaps with recompression, is short enough for the event loop."""
    is_plain = config.compression_type in _KEEPS_PLAIN
    return len(batch.built.data) <= (INLINE_BYTES if is_plain else _INLINE_COMPRESSED_BYTES)


PRODUCER_HEADERS = {
    "Kafka-Producer-Id": INT64_MAX,
    "Kafka-Producer-Epoch": INT16_MAX,
    "Kafka-Base-Sequence": INT32_MAX,
}
"""The headers in the order of ProducerStamp, each with its largest number."""
_NUMBER = re.compile(r"[0-9]{1,19}")


def producer_of(request: web.Request) -> ProducerStamp:
    """The producer that a request names, NO_PRODUCER without one; ApiError 40005."""
    given = {name: request.headers.getall(name, []) for name in PRODUCER_HEADERS}
    if not any(given.values()):
        return NO_PRODUCER
    numbers = []
    for name, most in PRODUCER_HEADERS.items():
        text = given[name][0].strip() if len(given[name]) == 1 else ""
        if not _NUMBER.fullmatch(text) or int(text) > most:
            raise ApiError(
                40005,
                f"{', '.join(PRODUCER_HEADERS)} are sent together, each once; {name} is a number "
                f"from 0 to {most}.",
                details={"parameter": name},
            )
        numbers.append(int(text))
    return ProducerStamp(*numbers)


def refuse_producer(request: web.Request) -> None:
    """Where records have no sequence: who names a producer would append twice. ApiError 40005."""
    for name in PRODUCER_HEADERS:
        if name in request.headers:
            raise ApiError(
                40005,
                f"{name} has no effect here, so that a retry would append again. Send it to "
                "/v1/topics/{topic}/partitions/{partition}/records, or raw batches with a producer "
                "in their own header.",
                details={"parameter": name},
            )
