"""Produce streams: records are appended while the request still arrives.

The documents that have arrived form one batch and one append per partition. Further ones are read
while earlier ones wait for their sync, a bounded number of groups ahead. Results are reported in
order, by a response writer: ``Receipts`` sends one per record during the request, ``Summary`` one
answer at the end. An invalid document or a refused record fails alone: a batch is split where a
limit or a rule requires it. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from aiohttp import hdrs, web

from kafkalog.broker.operations import Acks
from kafkalog.errors import KafkalogError
from kafkalog.log.values import LogAppendInfo
from kafkalog.server.produce.append import (
    DURABILITIES,
    INLINE_BYTES,
    Durability,
    PartitionBatch,
    Receipt,
    Results,
    Submitted,
    durability_header,
    mixed_receipts,
    results_of,
    settle,
    submit_group,
    with_batches,
)
from kafkalog.server.produce.json_body import DecodedGroup, Dialect, decode_each, decode_together
from kafkalog.server.protocol.bodies import BodyStream, DocumentStream, NotJson
from kafkalog.server.protocol.errors import ApiError, entry_of, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, answer_of
from kafkalog.server.protocol.replies import (
    REQUEST_ID,
    add_standard_headers,
    error_reply,
    json_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.server.api import Api
    from kafkalog.server.produce.append import PartitionTarget, Terms
    from kafkalog.server.produce.json_body import Fault
    from kafkalog.server.protocol.bodies import DocumentGroup


R = TypeVar("R")

# Groups that may wait for their outcome while further ones are read.
_AHEAD = 4


class SettledGroup(NamedTuple):
    """Documents that arrived together, and their results."""

    decoded: DecodedGroup
    results: Results


class ResponseWriter(Protocol):
    """Reports the results of a stream to its client."""

    async def begin(self) -> None:
        """The stream is admitted; nothing of it was read yet."""

    async def add_group(self, group: SettledGroup) -> None:
        """Report the next group, in the order of the documents."""


class AppendStream(ABC):
    """One request; see the module. Subclasses define what a document is."""

    def __init__(self, api: Api, topic: str, terms: Terms, writer: ResponseWriter) -> None:
        # constant after construction
        self._api = api
        self._topic = topic
        self._terms = terms
        self._writer = writer
        self._in_order = asyncio.Lock()  # fair: reports are in the order of the groups

    @abstractmethod
    async def _submit(
        self, documents: list[bytes], splitter: Splitter, body: BodyStream
    ) -> tuple[DecodedGroup, list[Submitted]]:
        """Decode and hand to the writer; ``body`` counts the documents until they are reported.

        What it raises ends the stream before them.
        """

    async def run(self, request: web.Request, splitter: Splitter) -> Fault | None:
        """Append everything that arrives; the error that ended the stream early, if any.

        What was not reported by then was not appended. ApiError 41502 and 42903 before it begins.
        """
        groups: deque[asyncio.Task[None]] = deque()
        with BodyStream(request, self._api) as body:
            documents = DocumentStream(request, self._api, body, splitter)
            await self._writer.begin()
            try:
                fault = await self._read(body, documents, splitter, groups)
                for group in groups:
                    await group
            finally:
                for group in groups:
                    group.cancel()
        return fault

    async def _read(
        self,
        body: BodyStream,
        documents: DocumentStream,
        splitter: Splitter,
        groups: deque[asyncio.Task[None]],
    ) -> Fault | None:
        """Everything up to the end of the body or to a fault."""
        try:
            while (group := await documents.next()) is not None:
                while len(groups) >= _AHEAD:
                    await groups.popleft()
                decoded, submitted = await self._submit(group.documents, splitter, body)
                report = self._report(body, group, decoded, submitted)
                if documents.is_empty and not groups:
                    await report
                else:
                    groups.append(asyncio.create_task(report))
                    await asyncio.sleep(0)  # let others have the loop between two groups
                if decoded.is_broken:
                    return None
        except (KafkalogError, ApiError) as fault:
            return fault
        if splitter.is_lost:
            return NotJson("there is text between two documents")
        return None

    async def _report(
        self,
        body: BodyStream,
        group: DocumentGroup,
        decoded: DecodedGroup,
        submitted: list[Submitted],
    ) -> None:
        async with self._in_order:
            appended = await settle(submitted)
            results = results_of(decoded.document_count, appended, decoded.faults)
            await self._writer.add_group(SettledGroup(decoded, results))
        body.release(group.size_bytes)


class ProduceStream(AppendStream, Generic[R]):
    """Documents of which each is a record."""

    def __init__(
        self, api: Api, topic: str, terms: Terms, dialect: Dialect[R], writer: ResponseWriter
    ) -> None:
        super().__init__(api, topic, terms, writer)
        self._dialect = dialect

    async def _submit(
        self, documents: list[bytes], splitter: Splitter, _body: BodyStream
    ) -> tuple[DecodedGroup, list[Submitted]]:
        """Decode and hand to the writer."""

        async def prepared(target: PartitionTarget) -> tuple[DecodedGroup, list[PartitionBatch]]:
            return await self._prepared(documents, target, splitter)

        return await submit_group(self._api, self._topic, self._terms, prepared)

    async def _prepared(
        self, documents: list[bytes], target: PartitionTarget, splitter: Splitter
    ) -> tuple[DecodedGroup, list[PartitionBatch]]:
        """The records of documents and their batches; away from the loop when it takes long."""
        dialect, now_ms = self._dialect, self._api.operations.now_ms()

        def together() -> tuple[DecodedGroup, list[PartitionBatch]]:
            return with_batches(decode_together(documents, dialect, now_ms), target)

        def each() -> tuple[DecodedGroup, list[PartitionBatch]]:
            is_last = splitter.ends_at_broken
            decoded = decode_each(documents, dialect, now_ms, ends_at_broken=is_last)
            return with_batches(decoded, target)

        try:
            if sum(map(len, documents)) <= INLINE_BYTES:
                return together()
            return await self._api.blocking(together)
        except ApiError:
            return await self._api.blocking(each)


class ProduceReceipt(Receipt, kw_only=True):
    """A line of the answer: its partition and offset, or why it was not appended.

    ``end_of_stream``: the daemon reads no further, and what has no receipt was not appended.
    """

    kafka_error: str | None = None
    retriable: bool | None = None
    details: dict[str, object] | None = None
    end_of_stream: bool | None = None


class ProducedRange(AnswerBody):
    """What went to one partition; others may have written between its first and last offset."""

    partition: int
    count: int
    base_offset: int
    last_offset: int


class FailedRecord(AnswerBody, kw_only=True):
    """A record that was not appended, by its number in the body; null: the stream was cut short.

    The members of a RequestError, after those that say which record it is.
    """

    index: int | None
    end_of_stream: bool | None = None
    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None
    validation_errors: list[str] | None = None
    record_errors: list[dict[str, object]] | None = None


class ProduceSummary(AnswerBody, kw_only=True):
    """What a request appended; ``errors`` names the first hundred of ``failed_count``.

    ``duplicate``: a producer's batch that was stored before; the offsets are those of then.
    """

    count: int
    failed_count: int
    partitions: list[ProducedRange]
    errors: list[FailedRecord]
    duplicate: bool = False
    durability: Durability


# Records named in a summary that were not appended; the others are counted.
_ERRORS_SHOWN = 100


class Receipts:
    """An answer that is sent while the request arrives.

    ``is_eager``: the status is out before anything is read, for clients that wait for it.
    """

    def __init__(
        self,
        request: web.Request,
        content_type: str,
        acks: Acks,
        write: Callable[[SettledGroup], bytes],
        *,
        is_eager: bool,
    ) -> None:
        self._request = request
        headers = {hdrs.CONTENT_TYPE: content_type, **durability_header(acks)}
        self._response = web.StreamResponse(headers=headers)
        self._write = write
        self._is_eager = is_eager

    @property
    def is_begun(self) -> bool:
        """Whether the status is out: from then on every error is in band."""
        return self._response.prepared

    async def begin(self) -> None:
        """See ResponseWriter."""
        if self._is_eager:
            await self._send_status()

    async def add_group(self, group: SettledGroup) -> None:
        """See ResponseWriter. Waits until the client has read most of the earlier receipts."""
        await self._send_status()
        await self._response.write(self._write(group))

    async def end(self, last_words: bytes = b"") -> web.StreamResponse:
        """The end of the stream; ``last_words``: the error that ended it before the request."""
        await self._send_status()
        if last_words:
            self._response.force_close()  # what the client still sends is not read
        await self._response.write_eof(last_words)
        return self._response

    async def _send_status(self) -> None:
        if not self.is_begun:
            add_standard_headers(self._response, self._request[REQUEST_ID])
            await self._response.prepare(self._request)


def receipt_lines(results: Results) -> bytes:
    """A receipt of v2 per line; that of a failure also says whether to retry."""
    if not results.record_count:
        return b""
    if results.faults:
        return b"\n".join((*map(_ENCODE, mixed_receipts(results, _failed)), b""))
    # Only digits vary in receipts, so this text is the end of one.
    array = results.receipts().removeprefix(b'"offsets":[').removesuffix(b"]")
    return array.replace(b"},{", b"}\n{") + b"\n"


def last_line(fault: Fault) -> bytes:
    """The line that ends a stream before the end of its body."""
    return _ENCODE(_failed(fault, end_of_stream=True)) + b"\n"


_ENCODE = msgspec.json.Encoder().encode


def _failed(fault: Fault, *, end_of_stream: bool | None = None) -> ProduceReceipt:
    return answer_of(
        ProduceReceipt, error_of(fault), partition=None, offset=None, end_of_stream=end_of_stream
    )


@dataclass(slots=True)
class Summary:
    """Counts records; the answer is sent at the end."""

    count: int = 0  # of records that were appended
    _failed_count: int = 0
    _seen_count: int = 0
    _ranges: dict[int, ProducedRange] = field(default_factory=dict)
    _errors: list[FailedRecord] = field(default_factory=list)
    _first_fault: Fault | None = None
    _codes: set[int] = field(default_factory=set)
    _is_duplicate: bool = False

    async def begin(self) -> None:
        """See ResponseWriter."""

    async def add_group(self, group: SettledGroup) -> None:
        """See ResponseWriter."""
        self.add(group.results)

    def add(self, results: Results) -> None:
        """What became of further records."""
        for partition, numbers, outcome in results.appended:
            if isinstance(outcome, LogAppendInfo):
                self.count += len(numbers)
                self._is_duplicate |= outcome.duplicate
                self._extend(partition, len(numbers), outcome)
        for number, fault in sorted(results.faults.items()):
            self._failed_count += 1
            self._note(fault, self._seen_count + number)
        self._seen_count += results.record_count

    def _extend(self, partition: int, count: int, info: LogAppendInfo) -> None:
        first, last = info.first_offset, info.last_offset
        known = self._ranges.get(partition)
        if known is not None:
            count += known.count
            first, last = min(first, known.base_offset), max(last, known.last_offset)
        self._ranges[partition] = ProducedRange(partition, count, first, last)

    def _note(self, fault: Fault, index: int | None, *, end_of_stream: bool | None = None) -> None:
        self._first_fault = self._first_fault or fault
        self._codes.add(entry_of(fault).error_code)
        if len(self._errors) < _ERRORS_SHOWN or end_of_stream:
            self._errors.append(
                answer_of(FailedRecord, error_of(fault), index=index, end_of_stream=end_of_stream)
            )

    def reply(self, request: web.Request, acks: Acks, fault: Fault | None = None) -> web.Response:
        """The answer, with the status of the error when all records failed with one number.

        ``fault``: why the stream ended early; raised with acks=0 when nothing was appended.
        """
        if acks is Acks.NONE:
            if fault is not None and not self.count:
                raise fault
            return silent_reply()
        if fault is not None:
            self._note(fault, None, end_of_stream=True)
        summary = ProduceSummary(
            count=self.count,
            failed_count=self._failed_count,
            partitions=sorted(self._ranges.values(), key=lambda each: each.partition),
            errors=self._errors,
            duplicate=self._is_duplicate,
            durability=DURABILITIES[acks],
        )
        if not self.count and self._first_fault is not None and len(self._codes) == 1:
            extra = msgspec.structs.asdict(summary)
            del extra["durability"], extra["duplicate"]  # nothing was appended
            return error_reply(self._first_fault, request[REQUEST_ID], extra=extra)
        return json_reply(summary, headers=durability_header(acks))


def silent_reply() -> web.Response:
    """202: the answer with acks=0."""
    return web.Response(status=202, headers=durability_header(Acks.NONE))
