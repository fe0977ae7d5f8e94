"""A Python client for a kafkalog daemon, blocking and for asyncio; see docs/client.md.

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

from kafkalog.client.admin import LowWatermark as LowWatermark
from kafkalog.client.client import Client as Client, Producer as Producer, Tail as Tail
from kafkalog.client.errors import (
    AccessDenied as AccessDenied,
    BadAnswer as BadAnswer,
    ClientError as ClientError,
    Conflict as Conflict,
    ConnectFailed as ConnectFailed,
    DaemonFault as DaemonFault,
    DiskFull as DiskFull,
    ExpectedOffsetMismatch as ExpectedOffsetMismatch,
    InvalidRecord as InvalidRecord,
    InvalidRequest as InvalidRequest,
    InvalidTxnState as InvalidTxnState,
    NonEmptyGroup as NonEmptyGroup,
    NoRoom as NoRoom,
    NotAuthenticated as NotAuthenticated,
    NotFound as NotFound,
    NotMadeDurable as NotMadeDurable,
    OffsetAboveHighWatermark as OffsetAboveHighWatermark,
    OffsetAboveLogEnd as OffsetAboveLogEnd,
    OffsetBelowLogStart as OffsetBelowLogStart,
    OffsetOutOfRange as OffsetOutOfRange,
    OutcomeUnknown as OutcomeUnknown,
    OutOfOrderSequence as OutOfOrderSequence,
    PolicyViolation as PolicyViolation,
    ProducerFenced as ProducerFenced,
    QuotaExceeded as QuotaExceeded,
    Refused as Refused,
    Throttled as Throttled,
    TooLarge as TooLarge,
    TopicExists as TopicExists,
    Unavailable as Unavailable,
    UnknownGroup as UnknownGroup,
    UnknownPartition as UnknownPartition,
    UnknownTopic as UnknownTopic,
)
from kafkalog.client.fetch import OffsetAt as OffsetAt
from kafkalog.client.messages import (
    Answer as Answer,
    Basic as Basic,
    Bearer as Bearer,
    Repeat as Repeat,
    Tls as Tls,
    path_of as path_of,
)
from kafkalog.client.producer import ProducerIdentity as ProducerIdentity
from kafkalog.client.records import (
    AppendReceipt as AppendReceipt,
    ConsumerRecord as ConsumerRecord,
    FetchedBatches as FetchedBatches,
    FetchedRecords as FetchedRecords,
    Position as Position,
    ProducerRecord as ProducerRecord,
)
from kafkalog.client.retry import ONE_TRY as ONE_TRY, Retries as Retries
from kafkalog.client.sinks import SinkProducer as SinkProducer, SinkWinner as SinkWinner

if TYPE_CHECKING:
    from kafkalog.client.async_client import (
        AsyncClient as AsyncClient,
        AsyncProducer as AsyncProducer,
        AsyncTail as AsyncTail,
    )

_OF_ASYNCIO = ("AsyncClient", "AsyncProducer", "AsyncTail")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """The classes for asyncio at their first use: importing aiohttp takes a quarter of a second."""
    if name not in _OF_ASYNCIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kafkalog.client import async_client

    return getattr(async_client, name)
