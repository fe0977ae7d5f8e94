"""The register of error numbers: what number, and so which HTTP status, an error has.

``error_code`` is status x 100 + n where a finer number exists, the bare status otherwise; numbers
that the Kafka REST ecosystem already uses keep their meaning. docs/reference/errors.md comes from
this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap

import msgspec

from kafkalog import errors
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One row of the register. ``error``: the class that it is the number of, or Kafka's name."""

    error_code: int
    error: type[errors.KafkalogError] | str
    meaning: str

    @property
    def status(self) -> int:
        """Of HTTP: the first three digits."""
        return int(str(self.error_code)[:3])

    @property
    def kafka_error(self) -> str:
        """The default; an exception may carry a finer one."""
        return self.error if isinstance(self.error, str) else self.error.kafka_error

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (429, 503, 507) or self.error_code == 50003


_ROWS: tuple[tuple[int, type[errors.KafkalogError] | str, str], ...] = (
    (
        400,
        "INVALID_REQUEST",
        "the body is not valid JSON, UTF-8 or base64; v3 and /admin/topics: it, or a record, has "
        "the wrong shape",
    ),
    (
        404,
        "INVALID_REQUEST",
        "no such path, operation, segment, broker, config or producer (UNKNOWN_PRODUCER_ID), or a "
        "partition that is no number",
    ),
    (405, "INVALID_REQUEST", "the path does not support this method; see Allow"),
    (406, "INVALID_REQUEST", "no available media type is acceptable"),
    (408, "REQUEST_TIMED_OUT", "the request header or body arrived too slowly"),
    (414, "INVALID_REQUEST", "the request line is too long"),
    (415, "INVALID_REQUEST", "unknown or missing Content-Type"),
    (417, "INVALID_REQUEST", "Expect other than 100-continue"),
    (
        421,
        "INVALID_REQUEST",
        "the Host header names no host of this daemon (DNS rebinding); see http.allowed.hosts",
    ),
    (
        422,
        "INVALID_REQUEST",
        "the JSON does not match the schema; validation_errors names the fields",
    ),
    (431, "INVALID_REQUEST", "request headers too large or too many"),
    (501, "UNSUPPORTED_VERSION", "v3: Kafka ACLs and reassignments are not supported"),
    (505, "UNSUPPORTED_VERSION", "HTTP version other than 1.0 and 1.1"),
    (40000, "INVALID_REQUEST", "broken HTTP framing"),
    (40002, errors.InvalidRequest, "invalid by Kafka's rules: topic name, config, or form"),
    (
        40005,
        "INVALID_REQUEST",
        "a query parameter or header has an invalid value, or a native route does not have the "
        "parameter",
    ),
    (40006, "INVALID_REQUEST", "a compressed body cannot be decompressed"),
    (40101, "SASL_AUTHENTICATION_FAILED", "missing or wrong credentials"),
    (
        40301,
        "TOPIC_AUTHORIZATION_FAILED",
        "not allowed by the access rules; /debug/ without admin.port: the request is not from "
        "this machine; a change requested by a page of another origin",
    ),
    (40401, errors.UnknownTopic, "topic not found"),
    (40402, errors.UnknownPartition, "partition not found"),
    (
        40403,
        "UNKNOWN_TOPIC_OR_PARTITION",
        "v2: consumer instance not found (UNKNOWN_MEMBER_ID); v3: unknown cluster, topic or "
        "partition, or a partition without commit or reader",
    ),
    (40405, errors.UnknownGroup, "group not found; v3 lags: no group of that name has a commit"),
    (40410, errors.UnknownMove, "the partition is not being moved"),
    (40411, errors.UnknownSink, "no sink of that query exists"),
    (40601, "INVALID_REQUEST", "the requested embedded format is not available here"),
    (40602, "INVALID_RECORD", "a record cannot be shown in the requested embedded format"),
    (40801, "REQUEST_TIMED_OUT", "in a stream: http.stream.max.ms is over; reconnect to continue"),
    (40902, errors.ConsumerExists, "the group has a consumer instance of that name already"),
    (
        40903,
        errors.IllegalConsumerState,
        "the consumer has no subscription or assignment, does not have that partition, or "
        "requests both",
    ),
    (40904, errors.TopicExists, "the topic exists already"),
    (40905, errors.OutOfOrderSequence, "idempotent append: gap in the sequence"),
    (40906, errors.InvalidProducerEpoch, "idempotent append: older epoch"),
    (
        40907,
        errors.PolicyViolation,
        "cleanup.policy does not allow delete-records, or does not contain compact",
    ),
    (
        40908,
        errors.InvalidTxnState,
        "invalid in the current state of the producer's transaction or the sink's batch",
    ),
    (40909, errors.BackupRunning, "a backup is running already"),
    (40910, errors.CleaningConflict, "the log is being cleaned or paused, or no cleaner runs"),
    (40911, errors.NonEmptyGroup, "the group has members"),
    (
        40912,
        errors.ProducerFenced,
        "a commit has an older epoch, or the sink has a newer batch or another run",
    ),
    (
        40913,
        errors.InvalidProducerIdMapping,
        "a commit names a producer that does not belong to the sink",
    ),
    (
        40914,
        errors.NoCommittedOffset,
        "the group has no commit of the partition, and the consumer's auto.offset.reset is none",
    ),
    (41001, errors.OffsetBelowLogStart, "offset below the log start offset"),
    (41201, errors.ExpectedOffsetMismatch, "expected_offset differs from the log end offset"),
    (41301, errors.RecordBatchTooLarge, "a batch is larger than max.message.bytes"),
    (41302, "INVALID_REQUEST", "the body is larger than socket.request.max.bytes"),
    (
        41303,
        errors.DecompressedTooLarge,
        "a batch is larger than max.decompressed.batch.bytes after decompression",
    ),
    (41304, errors.RecordSetTooLarge, "the batches together are larger than segment.bytes"),
    (41305, errors.LargerThanQuota, "the append is larger than the topic's quota.bytes"),
    (41502, "INVALID_REQUEST", "Content-Encoding is not gzip, deflate or identity"),
    (41601, errors.OffsetAboveLogEnd, "offset above the log end offset"),
    (
        41602,
        errors.OffsetAboveHighWatermark,
        "delete-records or an archived offset above the high watermark",
    ),
    (42204, "INVALID_REQUEST", "a consumer config is unknown or out of range"),
    (42206, "INVALID_REQUEST", "the body is empty"),
    (42208, "INVALID_REQUEST", "records:batch has no entries, too many entries, or a repeated id"),
    (42209, errors.BadBatchCrc, "a batch fails its CRC-32C"),
    (42210, errors.InvalidRecord, "malformed batch, wrong magic, or control batch"),
    (42211, errors.InvalidTimestamp, "a timestamp is outside the topic's limits"),
    (42212, errors.NullKey, "a record without key for a compacted topic"),
    (42213, errors.UnsupportedCompression, "unknown codec, or data that cannot be decompressed"),
    (42214, "INVALID_REQUEST", "more records than http.max.records"),
    (42901, "THROTTLING_QUOTA_EXCEEDED", "the rate limit of the principal or address is reached"),
    (42902, errors.Overloaded, "too many requests or bytes in progress; see Retry-After"),
    (42903, "THROTTLING_QUOTA_EXCEEDED", "too many waiting fetches and open streams"),
    (50000, "UNKNOWN_SERVER_ERROR", "a defect of the daemon; its log has the request id"),
    (
        50003,
        errors.AppendOutcomeUnknown,
        "the records were written but could not be made durable; they may be retained or lost",
    ),
    (
        50010,
        errors.CorruptData,
        "stored records are corrupt (details: base_offset, last_offset) or lost (first_offset, "
        "last_offset); reading can continue after last_offset. With details topic and partition: "
        "the partition is out of service because its files are damaged",
    ),
    (50011, errors.BackupFailed, "a backup failed and is incomplete"),
    (
        50101,
        errors.UnsupportedMessageFormat,
        "stored records (details: base_offset, last_offset) are in message format v0 or v1, of "
        "Kafka before 0.11: stop the daemon and run kafkalog segments convert; reading can "
        "continue after last_offset",
    ),
    (50302, errors.DescriptorsShort, "memory or file descriptors are exhausted"),
    (50303, errors.StorageFault, "the log directory is offline"),
    (
        50304,
        errors.Unavailable,
        "the daemon starts, recovers or stops (details: phase), the topic is being created, or "
        "the partition is being moved",
    ),
    (50701, errors.DiskFull, "the disk is full"),
    (50702, errors.QuotaExceeded, "the topic's quota.bytes is reached"),
)
ERROR_TABLE = tuple(starmap(ErrorEntry, _ROWS))
REGISTER: dict[int, ErrorEntry] = {row.error_code: row for row in ERROR_TABLE}

_BY_EXCEPTION: dict[type[errors.KafkalogError], int] = {
    **{row.error: row.error_code for row in ERROR_TABLE if not isinstance(row.error, str)},
    errors.UnknownSegment: 404,
    errors.UnknownProducer: 404,
    errors.TransactionCoordinatorFenced: 40906,
    errors.AccessDenied: 40301,
    errors.UnknownConsumer: 40403,
    errors.LogStartNotDurable: 50003,
    errors.KafkalogError: 50000,
}


class EntryError(AnswerBody, kw_only=True):
    """What went wrong with one entry of an answer about several."""

    error_code: int
    message: str
    kafka_error: str
    retriable: bool
    details: dict[str, object] | None = None

    @property
    def error(self) -> str:
        """The message, as entries about a partition call it."""
        return self.message


class RequestError(EntryError, kw_only=True):
    """What went wrong with a request, and which parts of it are wrong."""

    validation_errors: list[str] | None = None
    record_errors: list[dict[str, object]] | None = None


class FailedPartition(PartitionAnswer):
    """A partition that failed; the entries of others are not affected."""

    error_code: int
    kafka_error: str
    error: str


class ApiError(Exception):
    """An error of the HTTP layer: its number, a message that says what to do, optional details.

    kafka_error  a finer name than the number's
    """

    def __init__(
        self,
        error_code: int,
        message: str,
        *,
        validation_errors: tuple[str, ...] = (),
        details: dict[str, errors.Detail] | None = None,
        headers: dict[str, str] | None = None,
        kafka_error: str | None = None,
    ) -> None:
        super().__init__(message)
        self.entry = REGISTER[error_code]
        self.kafka_error = kafka_error or self.entry.kafka_error
        self.message = message
        self.validation_errors = validation_errors
        self.details = details or {}
        self.headers = headers or {}


def entry_of(error: errors.KafkalogError | ApiError) -> ErrorEntry:
    """The register's row for an error: of an inner ring's, its class or the nearest ancestor's."""
    if isinstance(error, ApiError):
        return error.entry
    for kind in type(error).__mro__:
        code = _BY_EXCEPTION.get(kind)
        if code is not None:
            return REGISTER[code]
    raise AssertionError(f"{type(error).__name__} has no row")


def error_of(error: errors.KafkalogError | ApiError) -> RequestError:
    """An error as answers have it."""
    entry, record_errors = entry_of(error), None
    if isinstance(error, ApiError):
        message, details = error.message, error.details
    else:
        message, details = error.public_message, error.public_details
        if isinstance(error, errors.CorruptData):
            # The name of the file is for the operator, who finds it in the log.
            details = {k: v for k, v in details.items() if k != "file"}
        elif isinstance(error, errors.InvalidRecord) and error.record_errors:
            record_errors = [
                {"batch_index": index, "message": text} for index, text in error.record_errors
            ]
    return RequestError(
        error_code=entry.error_code,
        message=message,
        kafka_error=error.kafka_error,
        retriable=entry.retriable,
        details=dict(details) or None,
        validation_errors=list(getattr(error, "validation_errors", ())) or None,
        record_errors=record_errors,
    )


def error_body(error: errors.KafkalogError | ApiError) -> dict[str, object]:
    """The same as a document, to which more is added."""
    body: dict[str, object] = msgspec.to_builtins(error_of(error))
    return body


def v3_fault(error: errors.KafkalogError | ApiError) -> errors.KafkalogError | ApiError:
    """A missing topic or partition has another number in v3 than in v2."""
    if isinstance(error, (errors.UnknownTopic, errors.UnknownPartition)):
        return ApiError(40403, error.message, details=error.details)
    return error
