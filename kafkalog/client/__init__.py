"""A Python client for a kafkalog daemon, blocking and for asyncio; see docs/reference/client.md.

    from kafkalog.client import Client, ProducerRecord

    with Client("http://127.0.0.1:8082") as client:
        client.produce("orders", [ProducerRecord(value="hello", key="k1")])
        for record in client.tail("orders", 0, start="earliest", is_endless=False):
            print(record.offset, record.value)

The modules in reading order: `messages` (requests, answers, addresses), `errors`, `retry` (when a
request is sent again; the core of both clients), `records`, `produce`, `producer`, `fetch`,
`sinks`, `admin`, `operations`, then `client` and `async_client`, which alone use sockets. `batches`
is imported at the first record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.client.admin import LowWatermark
from kafkalog.client.client import Client, Producer, Tail
from kafkalog.client.errors import (
    AccessDenied,
    BadAnswer,
    ClientError,
    Conflict,
    ConnectFailed,
    DaemonFault,
    DiskFull,
    ExpectedOffsetMismatch,
    InvalidRecord,
    InvalidRequest,
    InvalidTxnState,
    NonEmptyGroup,
    NoRoom,
    NotAuthenticated,
    NotFound,
    NotMadeDurable,
    OffsetAboveHighWatermark,
    OffsetAboveLogEnd,
    OffsetBelowLogStart,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    PolicyViolation,
    ProducerFenced,
    QuotaExceeded,
    Refused,
    Throttled,
    TooLarge,
    TopicExists,
    Unavailable,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.client.fetch import OffsetAt
from kafkalog.client.messages import Answer, Basic, Bearer, Repeat, Tls, path_of
from kafkalog.client.producer import ProducerIdentity
from kafkalog.client.records import (
    AppendReceipt,
    ConsumerRecord,
    FetchedBatches,
    FetchedRecords,
    Position,
    ProducerRecord,
)
from kafkalog.client.retry import ONE_TRY, Retries
from kafkalog.client.sinks import SinkProducer, SinkWinner

if TYPE_CHECKING:
    from kafkalog.client.async_client import AsyncClient, AsyncProducer, AsyncTail

__all__ = [
    "ONE_TRY",
    "AccessDenied",
    "Answer",
    "AppendReceipt",
    "AsyncClient",
    "AsyncProducer",
    "AsyncTail",
    "BadAnswer",
    "Basic",
    "Bearer",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectFailed",
    "ConsumerRecord",
    "DaemonFault",
    "DiskFull",
    "ExpectedOffsetMismatch",
    "FetchedBatches",
    "FetchedRecords",
    "InvalidRecord",
    "InvalidRequest",
    "InvalidTxnState",
    "LowWatermark",
    "NoRoom",
    "NonEmptyGroup",
    "NotAuthenticated",
    "NotFound",
    "NotMadeDurable",
    "OffsetAboveHighWatermark",
    "OffsetAboveLogEnd",
    "OffsetAt",
    "OffsetBelowLogStart",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "PolicyViolation",
    "Position",
    "Producer",
    "ProducerFenced",
    "ProducerIdentity",
    "ProducerRecord",
    "QuotaExceeded",
    "Refused",
    "Repeat",
    "Retries",
    "SinkProducer",
    "SinkWinner",
    "Tail",
    "Throttled",
    "Tls",
    "TooLarge",
    "TopicExists",
    "Unavailable",
    "UnknownGroup",
    "UnknownPartition",
    "UnknownTopic",
    "path_of",
]

_OF_ASYNCIO = ("AsyncClient", "AsyncProducer", "AsyncTail")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """The classes for asyncio at their first use: importing aiohttp takes a quarter of a second."""
    if name not in _OF_ASYNCIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kafkalog.client import async_client

    return getattr(async_client, name)
