"""Why records could not be written, and what to do about it."""

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
    """A task's records, or the end of a batch of tasks, did not get through."""


_ACCESS = "Name credentials that may, by the options token, or user and password"
_ADVICE: tuple[tuple[tuple[type[ClientError], ...], str], ...] = (
    (
        (ConnectFailed, OutcomeUnknown, Unavailable, Throttled),
        "Look whether the daemon of the option url runs and whether this machine reaches it; "
        "the option deliveryTimeout is how long it is tried",
    ),
    ((UnknownTopic,), "Create the topic first, as by 'kafkalog topics create'"),
    ((UnknownPartition,), "The topic has changed, or is not all there: look at its partitions"),
    ((NotAuthenticated, AccessDenied), _ACCESS),
    ((TooLarge,), "Set the option batchBytes to less, or the topic's max.message.bytes to more"),
    (
        (OutOfOrderSequence,),
        "The daemon lost what this task wrote before, as in a power cut with acks=1: run it again",
    ),
    (
        (InvalidTxnState,),
        "What was appended is not shown: it was aborted, as the daemon does when nothing is "
        "appended for transaction.max.timeout.ms, or some of it is gone, as with a topic that was "
        "deleted. Start it again",
    ),
    ((Conflict,), "Another attempt or run has taken over; if there is none, start it again"),
)


def undelivered(failure: ClientError, topic: str, partition: int, *, size_bytes: int) -> SinkFailed:
    """Of a batch of so many bytes."""
    return sink_failed(failure, f"A batch of {size_bytes} bytes did not get to {topic}-{partition}")


def sink_failed(failure: ClientError, what: str) -> SinkFailed:
    """What failed, what the daemon or the network said, and what to do."""
    advice = next((text for kinds, text in _ADVICE if isinstance(failure, kinds)), None)
    message = f"{what}: {failure.message.rstrip('.')}."
    failed = SinkFailed(message if advice is None else f"{message} {advice}.")
    failed.__cause__ = failure
    return failed
