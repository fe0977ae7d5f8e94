"""An Arrow IPC stream as a produce body, appended message by message.

A message is split into pieces; each piece becomes one batch per partition within
``max.message.bytes``. An error in a column or in the stream ends the request; earlier messages stay
appended and have their receipts. Owned by the event loop; pyarrow runs on the control pool.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import FormatError
from kafkalog.format.wire.arrow_messages import (
    MessageCutter,
    MessageTooLarge,
    UnusableColumn,
    inflated_bytes,
)
from kafkalog.server.produce.append import settle, submit_group, with_batches
from kafkalog.server.produce.json_body import DecodedGroup, DecodedRecords
from kafkalog.server.produce.stream import AppendStream
from kafkalog.server.protocol.bodies import too_large
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from kafkalog.format.wire.arrow_reader import ArrowReader, ArrowRecords
    from kafkalog.format.wire.json_documents import Splitter
    from kafkalog.server.api import Api
    from kafkalog.server.produce.append import PartitionBatch, PartitionTarget, Submitted, Terms
    from kafkalog.server.produce.json_body import Fault
    from kafkalog.server.produce.stream import ResponseWriter
    from kafkalog.server.protocol.arrow import ArrowFormats
    from kafkalog.server.protocol.bodies import BodyStream

# Of a piece, if the topic's max.message.bytes is not less: what a batch of a bulk load had best.
_PIECE_BYTES = 512 << 10
# Pieces of a message that may wait for their outcome: a message must not fill the writer's queue.
_PIECES_AHEAD = 8


class ArrowStream(AppendStream):
    """One request; see the module."""

    def __init__(
        self, api: Api, topic: str, terms: Terms, formats: ArrowFormats, writer: ResponseWriter
    ) -> None:
        super().__init__(api, topic, terms, writer)
        limit = api.config.socket_request_max_bytes
        self._cutter = MessageCutter(limit)
        self._reader: ArrowReader = formats.reader(piece_bytes=_PIECE_BYTES, max_bytes=limit)
        self._fault: Fault | None = None

    async def append(self, request: web.Request) -> Fault | None:
        """As ``run``."""
        fault = await self.run(request, self._cutter)
        if self._fault is not None:
            return self._fault
        return fault if self._cutter.fault is None else _refusal(self._cutter.fault)

    async def _submit(
        self, documents: list[bytes], splitter: Splitter, body: BodyStream
    ) -> tuple[DecodedGroup, list[Submitted]]:
        """The pieces of the messages; a fault ends the stream after those before it."""
        api = self._api
        submitted: list[Submitted] = []
        ahead: deque[list[Submitted]] = deque()
        count = 0
        try:
            for message in documents:
                with self._inflated(message, body):
                    pieces = self._reader.read(message, api.operations.now_ms())
                    while (piece := await api.blocking(next, pieces, None)) is not None:
                        if len(ahead) == _PIECES_AHEAD:
                            await settle(ahead.popleft())
                        ahead.append(await self._submit_piece(piece, count))
                        submitted += ahead[-1]
                        count += len(piece.columns)
        except FormatError as error:
            self._fault = _refusal(error)
        except (KafkalogError, ApiError) as fault:
            self._fault = fault
        numbers = np.arange(count, dtype=np.int64)
        return DecodedGroup(count, numbers, None, {}, self._fault is not None), submitted

    @contextlib.contextmanager
    def _inflated(self, message: bytes, body: BodyStream) -> Iterator[None]:
        """Count what pyarrow takes for a compressed message in the bound of all bodies."""
        size_bytes = inflated_bytes(message, self._api.config.socket_request_max_bytes)
        body.hold(size_bytes)
        try:
            yield
        finally:
            body.release(size_bytes)

    async def _submit_piece(self, piece: ArrowRecords, first_number: int) -> list[Submitted]:
        """A batch a partition."""
        count = len(piece.columns)
        numbers = np.arange(first_number, first_number + count)
        group = DecodedGroup(count, numbers, DecodedRecords(*piece), {})

        async def prepared(target: PartitionTarget) -> tuple[DecodedGroup, list[PartitionBatch]]:
            return await self._api.blocking(with_batches, group, target)

        return (await submit_group(self._api, self._topic, self._terms, prepared))[1]


def _refusal(error: FormatError) -> Fault:
    """The message for the client."""
    if isinstance(error, MessageTooLarge):
        return too_large(error.max_bytes)
    if isinstance(error, UnusableColumn):
        return ApiError(
            422, f"{error}.", validation_errors=(str(error),), details={"column": error.column}
        )
    return ApiError(400, f"The body is not taken: {error}.")
