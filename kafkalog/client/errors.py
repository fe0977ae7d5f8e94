"""The errors of the client: a class for each kind, chosen by the daemon's error number.

ClientError
├── ConnectFailed            no connection to the address: nothing was sent
├── OutcomeUnknown           it was sent, but its outcome is not known
│   └── NotMadeDurable       500/50003: written, but not made durable
├── BadAnswer                an answer that is not from the daemon, or not complete
└── Refused                  an error of the daemon; every number without its own class
    ├── InvalidRequest, NotAuthenticated, AccessDenied, DaemonFault
    ├── NotFound             UnknownTopic, UnknownPartition, UnknownGroup
    ├── Conflict             TopicExists, OutOfOrderSequence, ProducerFenced, InvalidTxnState,
    │                        PolicyViolation, NonEmptyGroup, ExpectedOffsetMismatch
    ├── OffsetOutOfRange     OffsetBelowLogStart, OffsetAboveLogEnd, OffsetAboveHighWatermark
    ├── TooLarge, InvalidRecord
    └── NoRoom (DiskFull, QuotaExceeded), Throttled, Unavailable
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.client.messages import Answer, NoAnswer
from kafkalog.client.records import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.client.records import AppendReceipt

_ERRORS_FROM = 400


class ClientError(Exception):
    """Root of the tree.

    message      what happened, and what to do
    status       of HTTP; None when there was no answer
    error_code   the daemon's number (docs/errors.md); None when it named none
    kafka_error  the Kafka protocol's name for it, likewise
    details      numbers of the error, such as log_start_offset
    retriable    whether the same request may succeed later
    nothing_was_done     whether it is certain that nothing was appended or changed
    retry_after_seconds  how long the daemon asks to wait
    request_id   of the request in the daemon's log
    appended     receipts of what the same call had appended before it failed
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body: Mapping[str, Any] | None = None,
        retriable: bool = False,
        nothing_was_done: bool = False,
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(message)
        body = body or {}
        self.message = message
        self.status = status
        self.error_code: int | None = body.get("error_code")
        self.kafka_error: str | None = body.get("kafka_error")
        self.details: Mapping[str, Any] = body.get("details") or {}
        self.request_id: str | None = body.get("request_id")
        self.retriable = retriable
        self.nothing_was_done = nothing_was_done
        self.retry_after_seconds = retry_after_seconds
        self.appended: tuple[AppendReceipt, ...] = ()


class ConnectFailed(ClientError):
    """There was no connection, so nothing was sent."""


class OutcomeUnknown(ClientError):
    """The request was sent, but it is not known whether it was carried out."""


class NotMadeDurable(OutcomeUnknown):
    """The records were written and could not be made durable: they may be kept or lost."""


class BadAnswer(ClientError):
    """The answer is not from the daemon (but a proxy), or its bytes are corrupt."""


class Refused(ClientError):
    """An error of the daemon."""


class InvalidRequest(Refused):
    """400, 405 to 408, 415, 422: the request is wrong in itself."""


class NotAuthenticated(Refused):
    """401: no or wrong credentials."""


class AccessDenied(Refused):
    """403: the access rules do not allow it."""


class NotFound(Refused):
    """404."""


class UnknownTopic(NotFound):
    """No such topic (or, from v3, topic or partition)."""


class UnknownPartition(NotFound):
    """The topic has no such partition."""


class UnknownGroup(NotFound):
    """No group of that name has committed offsets or members."""


class Conflict(Refused):
    """409 and 412: the request conflicts with the current state."""


class TopicExists(Conflict):
    """A topic of that name exists."""


class OutOfOrderSequence(Conflict):
    """409/40905: earlier records of this producer are not in the log."""


class ProducerFenced(Conflict):
    """409/40906: a newer epoch of this producer id has appended."""


class InvalidTxnState(Conflict):
    """409/40908: the batch of the sink was aborted or committed, or holds something else."""


class PolicyViolation(Conflict):
    """The topic's cleanup.policy forbids it."""


class NonEmptyGroup(Conflict):
    """The group has members."""


class ExpectedOffsetMismatch(Conflict):
    """expected_offset is not the log end; details: log_end_offset."""


class OffsetOutOfRange(Refused):
    """Outside the log; details: log_start_offset, log_end_offset or high_watermark."""


class OffsetBelowLogStart(OffsetOutOfRange):
    """Those records are deleted."""


class OffsetAboveLogEnd(OffsetOutOfRange):
    """No such records yet."""


class OffsetAboveHighWatermark(OffsetOutOfRange):
    """Records above the high watermark cannot be deleted."""


class TooLarge(Refused):
    """413: a batch, a set of batches or a body."""


class InvalidRecord(Refused):
    """422 for a batch: CRC, structure, timestamp, missing key, codec."""


class Throttled(Refused):
    """429: too many requests or bytes; nothing was done."""


class Unavailable(Refused):
    """503: starting, stopping, moving, an offline directory; nothing was appended."""


class NoRoom(Refused):
    """507: nothing was appended."""


class DiskFull(NoRoom):
    """The log directory is full."""


class QuotaExceeded(NoRoom):
    """The topic's quota.bytes is used up."""


class DaemonFault(Refused):
    """500: see the request id in the daemon's log; it is not known whether anything was done."""


_BY_STATUS: dict[int, type[ClientError]] = {
    400: InvalidRequest,
    401: NotAuthenticated,
    403: AccessDenied,
    404: NotFound,
    405: InvalidRequest,
    406: InvalidRequest,
    408: InvalidRequest,
    409: Conflict,
    412: Conflict,
    413: TooLarge,
    415: InvalidRequest,
    422: InvalidRequest,
    429: Throttled,
    500: DaemonFault,
    503: Unavailable,
    507: NoRoom,
}
_BY_CODE: dict[int, type[ClientError]] = {
    40401: UnknownTopic,
    40402: UnknownPartition,
    40405: UnknownGroup,
    40904: TopicExists,
    40905: OutOfOrderSequence,
    40906: ProducerFenced,
    40907: PolicyViolation,
    40908: InvalidTxnState,
    40912: ProducerFenced,
    40911: NonEmptyGroup,
    41001: OffsetBelowLogStart,
    41201: ExpectedOffsetMismatch,
    41601: OffsetAboveLogEnd,
    41602: OffsetAboveHighWatermark,
    42209: InvalidRecord,
    42210: InvalidRecord,
    42211: InvalidRecord,
    42212: InvalidRecord,
    42213: InvalidRecord,
    50003: NotMadeDurable,
    50701: DiskFull,
    50702: QuotaExceeded,
}
# v3 has Confluent's numbers, which are less specific than these names.
_BY_KAFKA_ERROR: dict[str, type[ClientError]] = {
    "TOPIC_ALREADY_EXISTS": TopicExists,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopic,
}
# With these statuses nothing was appended: the request was refused, or its records removed again.
_NOTHING_DONE = (503, 507)
_SERVER_ERRORS_FROM = 500


def class_of(status: int, error_code: int | None, kafka_error: str | None) -> type[ClientError]:
    """The class of a daemon's error, by its number, its name or its status."""
    return (
        _BY_CODE.get(error_code or 0)
        or _BY_KAFKA_ERROR.get(kafka_error or "")
        or _BY_STATUS.get(status, Refused)
    )


def failure_of(outcome: Answer | NoAnswer, address: object) -> ClientError | None:
    """The error of a try; None for an answer below 400."""
    if isinstance(outcome, NoAnswer):
        kind = OutcomeUnknown if outcome.was_sent else ConnectFailed
        return kind(
            f"No answer from {address}: {outcome.reason}.",
            retriable=not outcome.is_hopeless,
            nothing_was_done=not outcome.was_sent,
        )
    if 200 <= outcome.status < 300:
        return None
    body = _error_body(outcome)
    if body is None:
        # A proxy answered, which may have passed the request on before.
        return BadAnswer(f"The daemon answered {outcome.status}.", status=outcome.status)
    after = outcome.headers.get("retry-after", "")  # a proxy may send a date
    return class_of(outcome.status, body["error_code"], body.get("kafka_error"))(
        str(body["message"]),
        status=outcome.status,
        body=body,
        retriable=body.get("retriable") is True,
        nothing_was_done=outcome.status < _SERVER_ERRORS_FROM or outcome.status in _NOTHING_DONE,
        retry_after_seconds=float(after) if after.isascii() and after.isdigit() else 0.0,
    )


def document_of(answer: Answer, *names: str) -> Any:  # noqa: ANN401 - what the daemon sent
    """The JSON of an answer; with names, an object that has them. Raises BadAnswer.

    A proxy may have answered instead of the daemon, also with a 200.
    """
    try:
        document = answer.json
    except ValueError as error:
        raise _not_the_daemons(answer) from error
    if names and not (isinstance(document, dict) and document.keys() >= set(names)):
        raise _not_the_daemons(answer)
    return document


def _not_the_daemons(answer: Answer) -> BadAnswer:
    start = answer.body[:60].decode("utf-8", "replace")
    return BadAnswer(f"This is not an answer of the daemon: {start!r}.", status=answer.status)


def position_of(answer: Answer, offset: int) -> Position:
    """Where a fetch from ``offset`` left off, from the headers of its answer. Raises BadAnswer.

    A fetch that did not move found nothing readable: the records below the high watermark are then
    of open transactions.
    """
    try:
        next_offset = int(answer.headers["kafka-next-offset"])
        high_watermark = int(answer.headers["kafka-high-watermark"])
        log_start_offset = int(answer.headers["kafka-log-start-offset"])
    except (KeyError, ValueError) as error:
        raise _not_the_daemons(answer) from error
    is_up_to_date = next_offset >= high_watermark or next_offset == offset
    return Position(next_offset, high_watermark, log_start_offset, is_up_to_date)


def entry_failure(entry: Mapping[str, Any]) -> ClientError | None:
    """The error of the entry of one partition in an answer about several; None without one."""
    if entry.get("error_code") is None:
        return None
    message = entry.get("error") or entry.get("message") or "It failed."
    code = int(entry["error_code"])
    kind = class_of(code // 100 if code >= 1000 else code, code, entry.get("kafka_error"))
    return kind(str(message), body=entry)


def _error_body(answer: Answer) -> dict[str, Any] | None:
    """The body of an error of the daemon; None for any other body."""
    try:
        body = answer.json
    except ValueError:
        return None
    if (
        answer.status < _ERRORS_FROM
        or not isinstance(body, dict)
        or "message" not in body
        or type(body.get("error_code")) is not int
    ):
        return None
    return body
