"""v2 consumers: poll records (http-api.md 1.3, 1.4, 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from aiohttp import hdrs, web

from kafkalog.errors import KafkalogError
from kafkalog.manager.consumer import Delivery
from kafkalog.server.answers import RecordPage
from kafkalog.server.api import api_of
from kafkalog.server.consumer_poll import ConsumerPoll
from kafkalog.server.endpoint import Answer, endpoint
from kafkalog.server.group_commits import commit_positions
from kafkalog.server.media_types import EMBEDDED_TYPES, EmbeddedFormat, consumer_type
from kafkalog.server.parameters import IntegerParameter
from kafkalog.server.protocol import Connection
from kafkalog.server.replies import REQUEST_ID, bytes_reply, seal
from kafkalog.server.routes.consumers import INSTANCE, READ_GROUP, consumer_of

if TYPE_CHECKING:
    from kafkalog.manager.consumer import Consumer
    from kafkalog.server.api import Api
    from kafkalog.server.consumer_poll import PartitionPage

ROUTES = web.RouteTableDef()
_log = structlog.get_logger("kafkalog.server")
_UNSAID = -1
_TIMEOUT = IntegerParameter(
    "timeout",
    "How long to wait for records, in ms; absent: the consumer's consumer.request.timeout.ms.",
    _UNSAID,
)
_MAX_BYTES = IntegerParameter(
    "max_bytes", "Bytes of keys and values, but at least one record.", 1 << 20
)


@ROUTES.get(f"{INSTANCE}/records")
@endpoint(
    "pollRecords",
    "consumers",
    READ_GROUP,
    {
        200: Answer(
            "Records of its partitions, each in offset order.",
            dict.fromkeys(EMBEDDED_TYPES, RecordPage),
        )
    },
    parameters=(_TIMEOUT, _MAX_BYTES),
    errors=(406, 40402, 40403, 40601, 40602, 40903, 41601, 42903, 50010, 50303),
)
async def poll(request: web.Request) -> web.StreamResponse:
    """Records that the consumer has not got yet, as soon as there are some.

    Positions move when the answer is written. A client that polls again after its connection broke
    before it had read all gets the same records once more.
    """
    api, consumer = api_of(request), consumer_of(request)
    embedded = EmbeddedFormat(consumer.config.embedded_format)
    content_type = consumer_type(request.headers.get("Accept", ""), embedded)
    timeout_ms = _TIMEOUT.read(request)
    if timeout_ms == _UNSAID:
        timeout_ms = consumer.config.request_timeout_ms
    max_bytes = min(_MAX_BYTES.read(request), api.config.http_max_fetch_bytes)
    consumer.settle()
    if consumer.is_commit_due():
        await _auto_commit(api, consumer)
    reading = ConsumerPoll(api, consumer, max_bytes)
    pages = await reading.run(min(timeout_ms, api.config.http_max_wait_ms))
    response = bytes_reply(_joined(pages), content_type=content_type)
    response.headers["Cache-Control"] = "no-store"
    seal(response, request[REQUEST_ID])
    await response.prepare(request)
    await response.write_eof()
    connection = request.protocol
    assert isinstance(connection, Connection)
    if request.method != hdrs.METH_HEAD:  # its answer held no records
        moves = {page.at: (page.position, page.next_offset) for page in pages}
        consumer.deliver(Delivery(moves, lambda: connection.was_cut, connection))
    return response


async def _auto_commit(api: Api, consumer: Consumer) -> None:
    """A commit that fails is tried again at the next poll; reading goes on, as in Java's."""
    try:
        await commit_positions(api, consumer, only_moved=True)
    except KafkalogError as fault:
        _log.warning(
            "auto_commit_failed", group=consumer.group, consumer=consumer.name, reason=fault.message
        )


def _joined(pages: list[PartitionPage]) -> bytes:
    """Arrays as one."""
    if len(pages) == 1:
        return pages[0].body
    return b"[%b]" % b",".join(page.body[1:-1] for page in pages)
