"""The poll of a v2 consumer.

``ConsumerPoll`` collects a page of each partition that has records, beginning with another
partition each time. It returns as soon as ``fetch.min.bytes`` are there; until then appends and
changes of the consumer (a seek, a rebalance, its end, a newer poll) wake it. It moves positions
only over what cannot be read; the route moves them when the answer was written. Owned by the event
loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.groups.consumers import Dialect
from kafkalog.errors import KafkalogError, OffsetOutOfRange, UnknownConsumer
from kafkalog.format.wire.json_page import write_page
from kafkalog.format.wire.record_writer import UndecodableRecord
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from kafkalog.broker.groups.consumers import Consumer, ConsumerConfig
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.format.wire.json_page import JsonPage
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import FetchDataInfo
    from kafkalog.server.api import Api


_INLINE_BYTES = 256 << 10


class PartitionPage(NamedTuple):
    """Records of one partition from ``position`` up to before ``next_offset``, a JSON array."""

    at: TopicPartition
    position: int
    next_offset: int
    body: bytes


class ConsumerPoll:
    """See the module."""

    def __init__(self, api: Api, consumer: Consumer, max_bytes: int) -> None:
        """Ends a poll of the same consumer that still waits. IllegalConsumerState."""
        self._api = api
        self._consumer = consumer
        self._max_bytes = max(max_bytes, 1)
        self._number = consumer.begin_poll()
        consumer.on_change = self._note_change
        self._is_changed = False  # the consumer, since the last read
        self._seen: dict[TopicPartition, int] = {}  # readable end before the last read
        self._fault: KafkalogError | ApiError | None = None

    async def run(self, timeout_ms: int) -> list[PartitionPage]:
        """What there is, in at most timeout_ms; nothing when the poll was superseded.

        A partition that fails does not hold up the others; its error is raised when they have
        nothing. UnknownConsumer when the consumer left meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        wanted = min(self._consumer.config.min_bytes, self._max_bytes)
        while True:
            pages = await self._collect()
            if not self._is_current():
                return []
            left = deadline - loop.time()
            enough = sum(len(page.body) for page in pages) >= wanted
            if pages and (enough or left <= 0):
                return pages
            if self._fault is not None and not pages:
                raise self._fault
            if left <= 0 or self._api.stopping:
                return pages
            if not self._has_moved():
                keys = (self._consumer, *self._seen)
                await self._api.delayed_fetches.wait_any(keys, left)

    def _note_change(self) -> None:
        self._is_changed = True
        self._api.delayed_fetches.wake((self._consumer,))

    def _is_current(self) -> bool:
        consumer = self._consumer
        if consumer.is_gone:
            raise UnknownConsumer("Consumer instance not found: it left its group.")
        return consumer.poll_number == self._number

    def _has_moved(self) -> bool:
        """Whether something changed since the last read, which may have run on a pool."""
        return self._is_changed or any(self._end_of(at) != end for at, end in self._seen.items())

    def _end_of(self, at: TopicPartition) -> int:
        return self._consumer.end_of(self._api.operations.partition_log(at.topic, at.partition))

    async def _collect(self) -> list[PartitionPage]:
        """A page of each partition that has records, as long as there is room."""
        pages: list[PartitionPage] = []
        room = self._max_bytes
        self._seen, self._fault, self._is_changed = {}, None, False
        for at in self._consumer.poll_order():
            if room <= 0:
                break
            try:
                page = await self._page_of(at, room)
            except (KafkalogError, ApiError) as fault:
                self._fault = self._fault or fault
                continue
            if page is not None:
                pages.append(page)
                room -= len(page.body)
        positions = self._consumer.positions()  # a seek or a rebalance may have come in between
        return [page for page in pages if positions.get(page.at) == page.position]

    async def _page_of(self, at: TopicPartition, max_bytes: int) -> PartitionPage | None:
        """The next records of a partition; control and aborted batches are stepped over."""
        api, consumer = self._api, self._consumer
        position = consumer.position(at)
        log = api.operations.partition_log(at.topic, at.partition)
        while True:
            self._seen[at] = consumer.end_of(log)
            try:
                info = await api.fetch(log, position, max_bytes, consumer.config.isolation)
            except OffsetOutOfRange:
                # Its records were deleted meanwhile: auto.offset.reset applies.
                moved = consumer.position(at)
                if moved == position:
                    raise
                position = moved
                continue
            if not len(info.data):
                return None
            page = await self._write(log, info, position, max_bytes)
            api.metrics.traffic.observe_fetch(at.topic, len(info.data), page.count)
            if page.count:
                return PartitionPage(at, position, page.next_offset, page.body)
            consumer.step_over(at, position, page.next_offset)
            position = page.next_offset
            if position >= consumer.end_of(log):
                return None

    async def _write(
        self, log: UnifiedLog, info: FetchDataInfo, position: int, max_bytes: int
    ) -> JsonPage:
        write = self._write_up_to
        if len(info.data) <= _INLINE_BYTES:
            return write(log, info, position, max_bytes)
        return await self._api.blocking(write, log, info, position, max_bytes)

    def _write_up_to(
        self, log: UnifiedLog, info: FetchDataInfo, position: int, max_bytes: int
    ) -> JsonPage:
        """Up to the first record that does not fit the format; 40602 when that is the first."""
        at, config = log.topic_partition, self._consumer.config
        embedded = config.embedded_format
        aborted = [(a.producer_id, a.first_offset, a.last_offset) for a in info.aborted]
        end_offset = info.next_offset
        while True:
            try:
                page = write_page(
                    at.topic,
                    at.partition,
                    info.data,
                    position,
                    format=embedded,
                    max_bytes=max_bytes,
                    max_decompressed_bytes=self._api.operations.max_decompressed_bytes,
                    end_offset=end_offset,
                    aborted=aborted,
                )
            except UndecodableRecord as error:
                if error.offset <= position or error.offset >= end_offset:
                    raise _undecodable(at, error, config) from error
                end_offset, fault = error.offset, error
                continue
            if not page.count and end_offset < info.next_offset:
                raise _undecodable(at, fault, config)
            return page


def _undecodable(at: TopicPartition, error: UndecodableRecord, config: ConsumerConfig) -> ApiError:
    return ApiError(
        422 if config.dialect is Dialect.KARAPACE else 40602,
        f"The {error.part} at offset {error.offset} is not valid {config.embedded_format}; read it "
        "with a consumer of format binary, or seek past it.",
        details={"topic": at.topic, "partition": at.partition, "offset": error.offset},
    )
