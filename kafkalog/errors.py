"""The errors of kafkalog, by who caused them. HTTP statuses are in ``server/protocol/errors.py``.

KafkalogError
├── InvalidRequest              the client asked for something wrong; nothing was changed
│   ├── InvalidTopicName, TopicExists, TopicCollision, InvalidPartitions, InvalidTopicConfig
│   ├── UnknownTopic, UnknownPartition, UnknownSegment, UnknownProducer, UnknownMove
│   ├── LogDirNotFound, InvalidReplicaAssignment
│   ├── OffsetOutOfRange (OffsetBelowLogStart, OffsetAboveLogEnd, OffsetAboveHighWatermark)
│   ├── RecordBatchTooLarge, RecordSetTooLarge, DecompressedTooLarge
│   ├── BadBatchCrc, InvalidRecord, InvalidTimestamp, NullKey, UnsupportedCompression
│   ├── OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced
│   ├── InvalidProducerIdMapping, ProducerFenced, UnknownSink
│   ├── ExpectedOffsetMismatch, InvalidBackupTarget, BackupRunning, CleaningConflict
│   ├── UnknownGroup, NonEmptyGroup, UnknownConsumer, ConsumerExists, IllegalConsumerState
│   ├── NoCommittedOffset
│   ├── AccessDenied
│   │   ├── TopicAccessDenied, GroupAccessDenied, SinkAccessDenied, ClusterAccessDenied
│   └── PolicyViolation
├── CorruptData                 bytes on disk are not what was written: always file and position
│   ├── CorruptBatch (LostOffsets), CorruptIndex, CorruptCheckpoint
├── UnsupportedMessageFormat    stored by Kafka before 0.11 and not converted yet
├── StorageFault                the disk failed
│   ├── LogDirOffline, DiskFull, DescriptorsShort, BackupFailed
│   ├── AppendOutcomeUnknown, LogStartNotDurable
├── Unavailable                 nothing was done; the same request may succeed later
│   ├── NotReady (PartitionMoving), ConcurrentTransactions, Overloaded
│   ├── QuotaExceeded (LargerThanQuota: never fits)
└── InvalidConfig               the operator's configuration is wrong; refuse to start
    └── UnusableLogDirs         the contents of log.dirs are damaged or do not belong together

LogCleaningAborted is control flow and no KafkalogError: the cleaning of a log was stopped on
request. A bug in kafkalog is an ``AssertionError``.

``work_on_each`` and ``first_fault`` process many items, of which one may fail without stopping the
others.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Detail = int | str | None
T = TypeVar("T")

NAMES_PATHS: ContextVar[bool] = ContextVar("names_paths", default=True)
"""Whether a message may name files of this machine. The server sets it for each request."""


class KafkalogError(Exception):
    """Root of the tree; ``kafka_error`` is the Kafka protocol's name for it."""

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: bool = False
    without_paths: ClassVar[str | None] = None
    """Replaces a message that may name files; None: no message of the class names any."""

    def __init_subclass__(cls, *, kafka_error: str | None = None) -> None:
        """``kafka_error`` None: as the parent's."""
        super().__init_subclass__()
        if kafka_error is not None:
            cls.kafka_error = kafka_error

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = details
        self.already_logged = False  # by code that knew more about it

    @property
    def public_message(self) -> str:
        """For clients. ``message`` is for the operator and may name files."""
        return self.message if NAMES_PATHS.get() else self.pathless_message

    @property
    def pathless_message(self) -> str:
        """For clients that may not know the paths of files."""
        return self.without_paths or self.message

    @property
    def public_details(self) -> dict[str, Detail]:
        """The details that a client may read."""
        if NAMES_PATHS.get():
            return self.details
        return {
            name: value for name, value in self.details.items() if not str(value).startswith("/")
        }


class InvalidRequest(KafkalogError, kafka_error="INVALID_REQUEST"):
    """The client's fault; nothing was appended or changed."""


class InvalidTopicName(InvalidRequest, kafka_error="INVALID_TOPIC_EXCEPTION"):
    """Not 1-249 characters of ``[a-zA-Z0-9._-]``, or ``.`` or ``..``."""


class TopicExists(InvalidRequest, kafka_error="TOPIC_ALREADY_EXISTS"):
    """A topic of that name exists."""


class TopicCollision(InvalidRequest, kafka_error="INVALID_TOPIC_EXCEPTION"):
    """The name differs from an existing topic's only by ``.`` and ``_``."""


class InvalidPartitions(InvalidRequest, kafka_error="INVALID_PARTITIONS"):
    """A partition number or count outside its range."""


class InvalidTopicConfig(InvalidRequest, kafka_error="INVALID_CONFIG"):
    """A topic config key is unknown or its value out of range."""


class UnknownTopic(InvalidRequest, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """No such topic."""


class UnknownPartition(InvalidRequest, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """The topic exists, the partition does not."""


class UnknownProducer(InvalidRequest, kafka_error="UNKNOWN_PRODUCER_ID"):
    """The producer id was never given out, and no log knows it."""


class UnknownMove(InvalidRequest, kafka_error="NO_REASSIGNMENT_IN_PROGRESS"):
    """The partition is not being moved to another log directory."""


class LogDirNotFound(InvalidRequest, kafka_error="LOG_DIR_NOT_FOUND"):
    """The path is no entry of ``log.dirs``."""

    without_paths = "There is no such log directory."


class InvalidReplicaAssignment(InvalidRequest, kafka_error="INVALID_REPLICA_ASSIGNMENT"):
    """A partition may not be moved to a cordoned log directory."""

    without_paths = "The log directory is cordoned: no partition may be moved into it."


class UnknownSegment(InvalidRequest):
    """The partition has no segment that begins at that offset; details: base_offset."""


class OffsetOutOfRange(InvalidRequest, kafka_error="OFFSET_OUT_OF_RANGE"):
    """The log has no such offset for this request."""


class OffsetBelowLogStart(OffsetOutOfRange):
    """Fetch below the log start offset; details: log_start_offset, log_end_offset."""


class OffsetAboveLogEnd(OffsetOutOfRange):
    """Fetch above the log end offset; details: log_start_offset, log_end_offset."""


class OffsetAboveHighWatermark(OffsetOutOfRange):
    """Delete-records or an archived offset above the high watermark; details: high_watermark."""


class RecordBatchTooLarge(InvalidRequest, kafka_error="MESSAGE_TOO_LARGE"):
    """One batch is larger than ``max.message.bytes``."""


class RecordSetTooLarge(InvalidRequest, kafka_error="RECORD_LIST_TOO_LARGE"):
    """The whole set is larger than ``segment.bytes``."""


class DecompressedTooLarge(InvalidRequest, kafka_error="RECORD_LIST_TOO_LARGE"):
    """A batch inflates beyond ``max.decompressed.batch.bytes``."""


class BadBatchCrc(InvalidRequest, kafka_error="CORRUPT_MESSAGE"):
    """A batch sent by a client fails its CRC-32C or is shorter than a header."""


class InvalidRecord(InvalidRequest, kafka_error="INVALID_RECORD"):
    """A batch or record that Kafka's rules refuse; ``record_errors`` are (batch index, message)."""

    def __init__(
        self, message: str, record_errors: tuple[tuple[int, str], ...] = (), **details: Detail
    ) -> None:
        super().__init__(message, **details)
        self.record_errors = record_errors


class InvalidTimestamp(InvalidRecord, kafka_error="INVALID_TIMESTAMP"):
    """A record timestamp outside the topic's window, or LogAppendTime set by a producer."""


class NullKey(InvalidRecord):
    """A record without key on a compacted topic."""


class UnsupportedCompression(InvalidRequest, kafka_error="UNSUPPORTED_COMPRESSION_TYPE"):
    """Codec bits 5-7, or a stream that the named codec does not decode."""


class OutOfOrderSequence(InvalidRequest, kafka_error="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """Idempotent append with a gap; details: expected_sequence."""


class InvalidProducerEpoch(InvalidRequest, kafka_error="INVALID_PRODUCER_EPOCH"):
    """Idempotent append with an older epoch; details: current_epoch."""


class InvalidTxnState(InvalidRequest, kafka_error="INVALID_TXN_STATE"):
    """The request does not fit the state of the producer's transaction or of the sink's batch."""


class TransactionCoordinatorFenced(InvalidRequest, kafka_error="TRANSACTION_COORDINATOR_FENCED"):
    """An end-transaction marker with a lower coordinator epoch than the last one."""


class InvalidProducerIdMapping(InvalidRequest, kafka_error="INVALID_PRODUCER_ID_MAPPING"):
    """A commit names a producer that does not belong to the sink."""


class ProducerFenced(InvalidRequest, kafka_error="PRODUCER_FENCED"):
    """A commit names an older epoch of a producer, or a begin an older batch than is open."""


class UnknownSink(InvalidRequest, kafka_error="TRANSACTIONAL_ID_NOT_FOUND"):
    """No query of that name has begun a batch, or it was forgotten."""


class ExpectedOffsetMismatch(InvalidRequest):
    """Conditional append whose ``expected_offset`` is not the log end; details: log_end_offset."""


class InvalidBackupTarget(InvalidRequest):
    """No backup or restore may be written to the directory; nothing was written."""

    without_paths = "The directory cannot hold a backup; nothing was written."


class BackupRunning(InvalidRequest):
    """One backup at a time."""


class AccessDenied(InvalidRequest):
    """The access rules do not allow it to the principal; details: action, resource, name."""


class TopicAccessDenied(AccessDenied, kafka_error="TOPIC_AUTHORIZATION_FAILED"):
    """To a topic; the answer does not say whether it exists."""


class GroupAccessDenied(AccessDenied, kafka_error="GROUP_AUTHORIZATION_FAILED"):
    """To a consumer group; the answer does not say whether it exists."""


class SinkAccessDenied(AccessDenied, kafka_error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
    """To a query that writes exactly once; the answer does not say whether it exists."""


class ClusterAccessDenied(AccessDenied, kafka_error="CLUSTER_AUTHORIZATION_FAILED"):
    """To the daemon itself."""


class PolicyViolation(InvalidRequest, kafka_error="POLICY_VIOLATION"):
    """Delete-records without ``delete`` in ``cleanup.policy``, or a clean without ``compact``."""


class CleaningConflict(InvalidRequest):
    """The log is being cleaned or is paused, or the caller did not pause the log it resumes."""


class UnknownGroup(InvalidRequest, kafka_error="GROUP_ID_NOT_FOUND"):
    """No group of that name has a commit or a member."""


class NonEmptyGroup(InvalidRequest, kafka_error="NON_EMPTY_GROUP"):
    """The group has members, which would overwrite the change."""


class UnknownConsumer(InvalidRequest, kafka_error="UNKNOWN_MEMBER_ID"):
    """No such consumer instance: never created, deleted, or expired."""


class ConsumerExists(InvalidRequest):
    """The group has a consumer instance of that name."""


class IllegalConsumerState(InvalidRequest):
    """The consumer is not subscribed, or not in this way, or not assigned the partition."""


class NoCommittedOffset(InvalidRequest):
    """A consumer without ``auto.offset.reset`` has no commit to begin at.

    Details: group, topic, partition. Source: Kafka's NoOffsetForPartitionException.
    """


class CorruptData(KafkalogError, kafka_error="CORRUPT_MESSAGE"):
    """Bytes on disk are not what was written. Details always hold file and position."""

    without_paths = (
        "The partition is out of service: its files are damaged; the daemon's log names them."
    )

    def __init__(self, message: str, *, file: str, position: int, **details: Detail) -> None:
        super().__init__(f"{message} ({file} at {position})", **details)
        self.file = file
        self.position = position

    @property
    def public_message(self) -> str:
        """See KafkalogError; never with the path of the file."""
        return self.pathless_message


class CorruptBatch(CorruptData):
    """A record batch of a segment is invalid; details: base_offset and last_offset when known."""

    without_paths = "A stored record batch is corrupt and is not served."


class LostOffsets(CorruptBatch):
    """Acknowledged offsets are missing; ``file`` is the segment that should hold them.

    Details: first_offset and last_offset (None: up to where the log ended).
    """

    @property
    def public_message(self) -> str:
        """See KafkalogError."""
        first, last = self.details.get("first_offset"), self.details.get("last_offset")
        if not isinstance(last, int):
            return "Stored records are lost: the file that held them is missing or cut short."
        return (
            f"Offsets {first} to {last} are lost: the file that held them is missing or cut short. "
            f"The next record has offset {last + 1}. The loss is reported until the file is "
            "restored or the loss is accepted."
        )


class CorruptIndex(CorruptData):
    """An index file breaks its invariants: it is rebuilt."""


class CorruptCheckpoint(CorruptData):
    """A checkpoint file is damaged: no part of it is used."""


class UnsupportedMessageFormat(KafkalogError, kafka_error="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """Messages of format v0 or v1: not served, not cleaned; details: base_offset, last_offset."""

    def __init__(self, directory: str, base_offset: int, last_offset: int) -> None:
        """``directory``: of the partition; its path is for the operator."""
        name = directory.rpartition("/")[2]
        super().__init__(
            f"Offsets {base_offset} to {last_offset} of {name} are stored in message format v0 or "
            "v1, of Kafka before 0.11, which is not served. Stop the daemon and convert the "
            f"partition: kafkalog segments convert {directory} --execute. Reading can continue "
            f"after offset {last_offset}.",
            base_offset=base_offset,
            last_offset=last_offset,
        )
        self._pathless = self.message.replace(directory, f"LOG_DIR/{name}")

    @property
    def pathless_message(self) -> str:
        """See KafkalogError."""
        return self._pathless


class StorageFault(KafkalogError, kafka_error="KAFKA_STORAGE_ERROR"):
    """The disk failed."""

    retriable = True
    without_paths = "The disk failed; the daemon's log says where."


class LogDirOffline(StorageFault):
    """The log directory of the partition had an I/O error and is offline until a restart."""

    without_paths = (
        "The log directory of the partition is out of service; the daemon's log says why."
    )


class DiskFull(StorageFault):
    """ENOSPC, EDQUOT or EFBIG: the append is undone and the log directory stays online."""

    without_paths = "The disk of the partition is full."


class DescriptorsShort(StorageFault):
    """EMFILE, ENFILE or ENOMEM: refused; a failed disk only when a sync was affected."""

    without_paths = "The process is short of file descriptors or memory."


class AppendOutcomeUnknown(StorageFault):
    """The records were written, then the disk failed: they may be kept or lost.

    Details: first_offset and last_offset where they are known. After any other StorageFault of an
    append the log holds none of its records.
    """

    without_paths = (
        "The records, or a part of them, were written and could not be made durable: they may be "
        "kept or lost."
    )


class LogStartNotDurable(StorageFault):
    """Readers no longer see the records below ``low_watermark``; after a crash they may again."""

    without_paths = (
        "Readers no longer see the records below the low watermark, but the new log start is not "
        "durable: after a crash they may see them again. Repeat the request."
    )


class BackupFailed(StorageFault):
    """A backup or a restore failed: its output is incomplete and marked so.

    The log directories that it read are unchanged.
    """

    without_paths = "The backup failed and is incomplete."


class Unavailable(KafkalogError, kafka_error="COORDINATOR_LOAD_IN_PROGRESS"):
    """Nothing was done; the same request may succeed later."""

    retriable = True


class NotReady(Unavailable):
    """Starting, recovering or stopping."""


class LoadStopped(NotReady):
    """The daemon stops while it loads a log, whose files are left as by a crash.

    No client gets it: a partition that is not loaded answers no request.
    """


class PartitionMoving(NotReady, kafka_error="NOT_LEADER_OR_FOLLOWER"):
    """The partition is just changing its log directory."""


class ConcurrentTransactions(Unavailable, kafka_error="CONCURRENT_TRANSACTIONS"):
    """An older transaction of the producer, or another request of its sink, is still running."""


class Overloaded(Unavailable, kafka_error="THROTTLING_QUOTA_EXCEEDED"):
    """Too many requests are in flight; refused before anything was read or appended."""


class QuotaExceeded(Unavailable, kafka_error="THROTTLING_QUOTA_EXCEEDED"):
    """The append would exceed the topic's ``quota.bytes``; details: quota_bytes, used_bytes."""


class LargerThanQuota(QuotaExceeded, kafka_error="RECORD_LIST_TOO_LARGE"):
    """The append alone is larger than ``quota.bytes``: it would not fit into an empty topic."""


class InvalidConfig(KafkalogError, kafka_error="INVALID_CONFIG"):
    """The message names key, value and valid range. The daemon refuses to start."""

    without_paths = "The daemon's configuration is wrong; its log says where."


class UnusableLogDirs(InvalidConfig):
    """The contents of ``log.dirs`` are damaged or do not belong together; a restart does not help.

    The daemon ends with an exit status for which service managers do not restart it.
    """

    without_paths = "The log directories cannot be used; the daemon's log names cause and remedy."


class LogCleaningAborted(Exception):
    """The cleaning of a log is stopped; it may be repeated. Kafka's LogCleaningAbortedException."""


def work_on_each(
    items: Iterable[T],
    work: Callable[[T], object],
    log_fault: Callable[[T, KafkalogError], None] | None = None,
) -> None:
    """Work on all items, then raise the first fault; see ``first_fault``."""
    fault = first_fault(items, work, log_fault)
    if fault is not None:
        raise fault


def first_fault(
    items: Iterable[T],
    work: Callable[[T], object],
    log_fault: Callable[[T, KafkalogError], None] | None = None,
) -> KafkalogError | None:
    """Work on all items, also when one of them fails; the first fault, or None.

    ``log_fault`` logs a fault with its item, which is marked as ``already_logged``. An error that
    is no KafkalogError is a defect and ends the loop.
    """
    first: KafkalogError | None = None
    for item in items:
        try:
            work(item)
        except KafkalogError as fault:
            if log_fault is not None:
                log_fault(item, fault)
                fault.already_logged = True
            first = first or fault
    return first
