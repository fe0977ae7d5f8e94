"""The error of records that could not be written, with advice for its cause."""

from __future__ import annotations

from kafkalog.client.errors import (
    AccessDenied,
    ClientError,
    Conflict,
    ConnectFailed,
    InvalidTxnState,
    NotAuthenticated,
    OutcomeUnknown,
    OutOfOrderSequence,
    Throttled,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from kafkalog.errors import KafkalogError


class SinkFailed(KafkalogError):
    """The records of a task, or the commit or abort of a batch, were not accepted."""


_ACCESS = "Give credentials with access: option tokenFile, or user and passwordFile"
_ADVICE: tuple[tuple[tuple[type[ClientError], ...], str], ...] = (
    (
        (ConnectFailed, OutcomeUnknown, Unavailable, Throttled),
        "Check that the daemon of option url runs and can be reached from this machine; "
        "option deliveryTimeout is the time of the retries",
    ),
    ((UnknownTopic,), "Create the topic first, for example with 'kafkalog topics create'"),
    ((UnknownPartition,), "The topic was changed or lacks partitions: check its partitions"),
    ((NotAuthenticated, AccessDenied), _ACCESS),
    ((TooLarge,), "Decrease option batchBytes, or increase the topic's max.message.bytes"),
    (
        (OutOfOrderSequence,),
        "The daemon lost earlier records of this task, as in a power cut with acks=1: run it again",
    ),
    (
        (InvalidTxnState,),
        "The records are not visible: they were aborted, as the daemon does when nothing is "
        "appended for transaction.max.timeout.ms, or some of them are lost, as with a deleted "
        "topic. Start it again",
    ),
    ((Conflict,), "Another attempt or run has fenced this one; if there is none, start it again"),
)


def sink_failed(failure: ClientError, what: str) -> SinkFailed:
    """The error with what failed, the error of daemon or network, and what to do."""
    advice = next((text for kinds, text in _ADVICE if isinstance(failure, kinds)), None)
    message = f"{what}: {failure.message.rstrip('.')}."
    failed = SinkFailed(message if advice is None else f"{message} {advice}.")
    failed.__cause__ = failure
    return failed
