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
    from collections.abc import Iterable, Mapping

    from kafkalog.client.records import AppendReceipt

_ERRORS_FROM = 400
NOT_READY = 50304
_BY_STATUS: dict[int, type[ClientError]] = {}
_BY_CODE: dict[int, type[ClientError]] = {}
_BY_KAFKA_ERROR: dict[str, type[ClientError]] = {}


class ClientError(Exception):
    """Root of the tree.

    message      what happened, and what to do
    status       of HTTP; None when there was no answer
    error_code   the daemon's number (docs/reference/errors.md); None when it named none
    kafka_error  the Kafka protocol's name for it, likewise
    details      numbers of the error, such as log_start_offset
    retriable    whether the same request may succeed later
    nothing_was_done     whether it is certain that nothing was appended or changed
    retry_after_seconds  how long the daemon asks to wait
    request_id   of the request in the daemon's log
    may_be_down  whether the reason may be that no daemon runs at the address
    appended     receipts of what the same call had appended before it failed
    """

    def __init_subclass__(
        cls, *, statuses: Iterable[int] = (), codes: Iterable[int] = (), kafka_error: str = ""
    ) -> None:
        """The answers that are of the class itself.

        kafka_error  for v3, which has Confluent's numbers: they are less specific than these names
        """
        super().__init_subclass__()
        _BY_STATUS.update(dict.fromkeys(statuses, cls))
        _BY_CODE.update(dict.fromkeys(codes, cls))
        if kafka_error:
            _BY_KAFKA_ERROR[kafka_error] = cls

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
        self.details: Mapping[str, Any] = _object_in(body, "details")
        self.request_id: str | None = body.get("request_id")
        self.retriable = retriable
        self.nothing_was_done = nothing_was_done
        self.retry_after_seconds = retry_after_seconds
        self.may_be_down = False
        self.appended: tuple[AppendReceipt, ...] = ()

    @property
    def is_starting(self) -> bool:
        """Whether the daemon loads its logs: it will serve, but that may take long."""
        return self.details.get("phase") == "starting"


class ConnectFailed(ClientError):
    """There was no connection, so nothing was sent."""


class OutcomeUnknown(ClientError):
    """The request was sent, but it is not known whether it was carried out."""


class NotMadeDurable(OutcomeUnknown, codes=(50003,)):
    """The records were written and could not be made durable: they may be kept or lost."""


class BadAnswer(ClientError):
    """The answer is not from the daemon (but a proxy), or its bytes are corrupt."""


class Refused(ClientError):
    """An error of the daemon."""


class InvalidRequest(Refused, statuses=(400, 405, 406, 408, 415, 422)):
    """400, 405 to 408, 415, 422: the request is wrong in itself."""


class NotAuthenticated(Refused, statuses=(401,)):
    """401: no or wrong credentials."""


class AccessDenied(Refused, statuses=(403,)):
    """403: the access rules do not allow it."""


class NotFound(Refused, statuses=(404,)):
    """404."""


class UnknownTopic(NotFound, codes=(40401,), kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """No such topic (or, from v3, topic or partition)."""


class UnknownPartition(NotFound, codes=(40402,)):
    """The topic has no such partition."""


class UnknownGroup(NotFound, codes=(40405,)):
    """No group of that name has committed offsets or members."""


class Conflict(Refused, statuses=(409, 412)):
    """409 and 412: the request conflicts with the current state."""


class TopicExists(Conflict, codes=(40904,), kafka_error="TOPIC_ALREADY_EXISTS"):
    """A topic of that name exists."""


class OutOfOrderSequence(Conflict, codes=(40905,)):
    """409/40905: earlier records of this producer are not in the log."""


class ProducerFenced(Conflict, codes=(40906, 40912)):
    """409/40906: a newer epoch of this producer id has appended."""


class InvalidTxnState(Conflict, codes=(40908,)):
    """409/40908: the batch of the sink was aborted or committed, or holds something else."""


class PolicyViolation(Conflict, codes=(40907,)):
    """The topic's cleanup.policy forbids it."""


class NonEmptyGroup(Conflict, codes=(40911,)):
    """The group has members."""


class ExpectedOffsetMismatch(Conflict, codes=(41201,)):
    """expected_offset is not the log end; details: log_end_offset."""


class OffsetOutOfRange(Refused):
    """Outside the log; details: log_start_offset, log_end_offset or high_watermark."""


class OffsetBelowLogStart(OffsetOutOfRange, codes=(41001,)):
    """Those records are deleted."""


class OffsetAboveLogEnd(OffsetOutOfRange, codes=(41601,)):
    """No such records yet."""


class OffsetAboveHighWatermark(OffsetOutOfRange, codes=(41602,)):
    """Records above the high watermark cannot be deleted."""


class TooLarge(Refused, statuses=(413,)):
    """413: a batch, a set of batches or a body."""


class InvalidRecord(Refused, codes=range(42209, 42214)):
    """422 for a batch: CRC, structure, timestamp, missing key, codec."""


class Throttled(Refused, statuses=(429,)):
    """429: too many requests or bytes; nothing was done."""


class Unavailable(Refused, statuses=(503,)):
    """503: starting, stopping, moving, an offline directory; nothing was appended."""


class NoRoom(Refused, statuses=(507,)):
    """507: nothing was appended."""


class DiskFull(NoRoom, codes=(50701,)):
    """The log directory is full."""


class QuotaExceeded(NoRoom, codes=(50702,)):
    """The topic's quota.bytes is used up."""


class DaemonFault(Refused, statuses=(500,)):
    """500: see the request id in the daemon's log; it is not known whether anything was done."""


# With these statuses nothing was appended: the request was refused, or its records removed again.
_NOTHING_DONE = (503, 507)
_SERVER_ERRORS_FROM = 500
_UNFIT_LOGS = (50010, 50101)


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
        failure = kind(
            f"No answer from {address}: {outcome.reason}.",
            retriable=not outcome.is_hopeless,
            nothing_was_done=not outcome.was_sent,
        )
        failure.may_be_down = outcome.may_be_down
        return failure
    if 200 <= outcome.status < 300:
        return None
    body = _error_body(outcome) or _not_ready_body(outcome)
    if body is None:
        # A proxy answered, which may have passed the request on before.
        return BadAnswer(_foreign(outcome, address), status=outcome.status)
    after = outcome.headers.get("retry-after", "")  # a proxy may send a date
    return class_of(outcome.status, body["error_code"], body.get("kafka_error"))(
        str(body["message"]),
        status=outcome.status,
        body=body,
        retriable=body.get("retriable") is True,
        nothing_was_done=_is_nothing_done(outcome.status),
        retry_after_seconds=float(after) if after.isascii() and after.isdigit() else 0.0,
    )


def _foreign(answer: Answer, address: object) -> str:
    """Of an error without the daemon's body."""
    server = answer.headers.get("server", "")
    if server == "kafkalog":
        return f"The daemon answered {answer.status}."
    shown = f"status {answer.status}{server and f', {server[:60]}'}"
    return f"What answers at {address} is not kafkalog ({shown}): is the address right?"


def _is_nothing_done(status: int) -> bool:
    return status < _SERVER_ERRORS_FROM or status in _NOTHING_DONE


def was_not_appended(failure: ClientError) -> bool:
    """Of one try of an append: whether it is certain that its records are not in the log.

    Stored records that are damaged or in an old format keep their log out of service, so that it
    refuses an append before it writes.
    """
    return failure.nothing_was_done or failure.error_code in _UNFIT_LOGS


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
    status = code // 100 if code >= 1000 else code
    kind = class_of(status, code, entry.get("kafka_error"))
    return kind(str(message), body=entry, nothing_was_done=_is_nothing_done(status))


def _not_ready_body(answer: Answer) -> dict[str, Any] | None:
    """An error of it, when the daemon answers a probe that it is not ready."""
    try:
        body = answer.json
    except ValueError:
        return None
    if not isinstance(body, dict) or body.get("status") != "not ready":
        return None
    checks, loading = _object_in(body, "checks"), _object_in(body, "loading")
    details, reason = {}, body.get("start_refused") or "no log directory is online"
    if checks.get("not_stopping") is False:
        reason = "it is stopping"
    elif loading:
        details = {"phase": "starting"}
        loaded, partitions = loading.get("partitions_loaded", "?"), loading.get("partitions", "?")
        reason = f"it is starting, {loaded} of {partitions} partitions are loaded"
    message = f"The daemon is not ready: {str(reason).rstrip('.')}."
    return {"message": message, "error_code": NOT_READY, "details": details}


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
        or not isinstance(body.get("kafka_error"), str | None)
    ):
        return None
    return body


def _object_in(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object of that name; empty for anything else, which another server may have sent."""
    value = body.get(name)
    return value if isinstance(value, dict) else {}
