"""Producer headers: what makes a produce of records idempotent (http-api.md N8).

The three headers say of the request's records what the header of a raw batch says of its own: whose
they are, and the sequence of the first. So they are one batch, which can be sent again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT64_MAX
from kafkalog.format.records.batch_builder import NO_PRODUCER, ProducerStamp
from kafkalog.server.error_map import ApiError

if TYPE_CHECKING:
    from aiohttp import web

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
