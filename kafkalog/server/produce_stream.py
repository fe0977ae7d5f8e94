"""ProduceStream: records are appended while their request still comes, and told of while it lasts.

Documents that are there together become one batch and one append a partition; the next ones are
read while those before wait for their sync, a bounded number of groups ahead. Groups are told of in
order. A document that is no record, or a record that is refused, takes no other with it: batches
are made smaller where a limit or a rule asks for it. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kafkalog.errors import KafkalogError
from kafkalog.server.appends import (
    INLINE_BYTES,
    Results,
    Submitted,
    prepare_for,
    renumbered,
    results_of,
    settle,
    submit_each,
)
from kafkalog.server.body_stream import BodyStream, DocumentStream
from kafkalog.server.error_map import ApiError
from kafkalog.server.produce_batches import PartitionBatch, make_batches
from kafkalog.server.record_documents import DecodedGroup, Dialect, decode_each, decode_together
from kafkalog.server.schemas import NotJson

if TYPE_CHECKING:
    from aiohttp import web

    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.server.api import Api
    from kafkalog.server.appends import Fault, Terms
    from kafkalog.server.body_stream import DocumentGroup
    from kafkalog.server.produce_batches import Place

R = TypeVar("R")

# Groups that may wait for their outcome while further ones are read.
_AHEAD = 4


class SettledGroup(NamedTuple):
    """Documents that came together and what became of them."""

    decoded: DecodedGroup
    results: Results


class Teller(Protocol):
    """Who tells the client."""

    async def begin(self) -> None:
        """The stream has its place, and nothing of it was read yet."""
        ...

    async def tell(self, group: SettledGroup) -> None:
        """The next group, in the order of the documents."""
        ...


class AppendStream(ABC):
    """One request; see the module. What its documents are is the subclass's."""

    def __init__(self, api: Api, topic: str, terms: Terms, teller: Teller) -> None:
        # constant after construction
        self._api = api
        self._topic = topic
        self._terms = terms
        self._teller = teller
        self._in_order = asyncio.Lock()  # fair: who came first tells first

    @abstractmethod
    async def _submit(
        self, documents: list[bytes], splitter: Splitter, body: BodyStream
    ) -> tuple[DecodedGroup, list[Submitted]]:
        """Decode and hand to the writer; ``body`` holds the documents until they are told of.

        What it raises ends the stream in front of these.
        """

    async def run(self, request: web.Request, splitter: Splitter) -> Fault | None:
        """Append everything that comes; why the stream ended before its end, if it did.

        What was not told of by then was not appended. ApiError 41502 and 42903 before it begins.
        """
        groups: deque[asyncio.Task[None]] = deque()
        with BodyStream(request, self._api) as body:
            documents = DocumentStream(request, self._api, body, splitter)
            await self._teller.begin()
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
                telling = self._tell(body, group, decoded, submitted)
                if documents.is_empty and not groups:
                    await telling
                else:
                    groups.append(asyncio.create_task(telling))
                    await asyncio.sleep(0)  # let others have the loop between two groups
                if decoded.is_broken:
                    return None
        except (KafkalogError, ApiError) as fault:
            return fault
        if splitter.is_lost:
            return NotJson("something stands between two documents")
        return None

    async def _tell(
        self,
        body: BodyStream,
        group: DocumentGroup,
        decoded: DecodedGroup,
        submitted: list[Submitted],
    ) -> None:
        async with self._in_order:
            appended = await settle(submitted)
            results = results_of(decoded.document_count, appended, decoded.faults)
            await self._teller.tell(SettledGroup(decoded, results))
        body.let_go(group.size_bytes)


class ProduceStream(AppendStream, Generic[R]):
    """Documents of which each is a record."""

    def __init__(
        self, api: Api, topic: str, terms: Terms, dialect: Dialect[R], teller: Teller
    ) -> None:
        super().__init__(api, topic, terms, teller)
        self._dialect = dialect

    async def _submit(
        self, documents: list[bytes], splitter: Splitter, _body: BodyStream
    ) -> tuple[DecodedGroup, list[Submitted]]:
        """Decode and hand to the writer."""

        async def prepared(place: Place) -> tuple[DecodedGroup, list[PartitionBatch]]:
            return await self._prepared(documents, place, splitter)

        decoded, batches = await prepare_for(
            self._api, self._topic, self._terms.partition, prepared
        )
        submitted: list[Submitted] = []
        for batch in batches:
            assert decoded.records is not None
            columns = decoded.records.columns
            submitted += await submit_each(self._api, self._topic, columns, batch, self._terms)
        return decoded, renumbered(submitted, decoded.numbers)

    async def _prepared(
        self, documents: list[bytes], place: Place, splitter: Splitter
    ) -> tuple[DecodedGroup, list[PartitionBatch]]:
        """The records of documents and their batches; away from the loop when it takes long."""
        dialect, now_ms = self._dialect, self._api.operations.now_ms()

        def together() -> tuple[DecodedGroup, list[PartitionBatch]]:
            return _batched(decode_together(documents, dialect, now_ms), place)

        def each() -> tuple[DecodedGroup, list[PartitionBatch]]:
            ends_at_broken = splitter.ends_at_broken
            return _batched(
                decode_each(documents, dialect, now_ms, ends_at_broken=ends_at_broken), place
            )

        try:
            if sum(map(len, documents)) <= INLINE_BYTES:
                return together()
            return await self._api.blocking(together)
        except ApiError:
            return await self._api.blocking(each)


def _batched(decoded: DecodedGroup, place: Place) -> tuple[DecodedGroup, list[PartitionBatch]]:
    """With the batch of each partition."""
    return decoded, [] if decoded.records is None else make_batches(decoded.records, place)
