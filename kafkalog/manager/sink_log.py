"""SinkLog: the compacted topic ``__sink_state``, one partition, written synced and read at a start.

Owns the topic (made at the first write) and the bytes; what the records mean is ``sink.py``'s. A
write that raises AppendOutcomeUnknown lies in the log and may be durable or not: once ``flush``
returns it is, and a restart reads it or it is gone. But one of which a part was written and could
not be cut off again is known by a restart alone: from then on ``flush`` refuses, also when the log
was moved meanwhile, without the torn end. Nothing here is passed over: a damaged or newer
record would be a decision that is not carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import AppendOutcomeUnknown, CorruptBatch, LogDirOffline, NotReady
from kafkalog.format.disk.sink_state import (
    MAX_MESSAGE_BYTES,
    ProducerKey,
    ProducerValue,
    QueryValue,
    decode_key,
    decode_producer,
    decode_query,
    encode_key,
    encode_producer,
    encode_query,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import RecordColumns, build_plain_batch
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import read_header
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from kafkalog.log.validator import validate_built
from kafkalog.log.values import Isolation
from kafkalog.manager.commands import AppendCommand, CoordinatorAppendCommand, FlushCommand
from kafkalog.manager.values import Acks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.sink import Entry, Key, Value

_READ_BYTES = 1 << 20


class SinkLog:
    """See the module. Blocking; for control threads and tasks."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager
        self._config = manager.config
        # under a mutex of its own, held while a file is read
        self._reads = manager.seams.threads.mutex()
        self._is_stopped = False
        # set by whoever writes, for good
        self._is_torn = False  # a write left something that only a restart can tell

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return SINK_STATE_TOPIC in self._manager.registry.topics

    @property
    def is_served(self) -> bool:
        """Whether the partition can be read; also before there is one: then nothing is."""
        log = self._manager.table.get(SINK_STATE_TOPIC, 0)
        return log is not None and self._manager.unit_of(log).log_dir.is_online

    def check(self) -> None:
        """What keeps the partition from being served; nothing when there is none yet."""
        if self.exists:
            self._log()

    def stop(self) -> None:
        """No file of the topic is read any more on return."""
        with self._reads:
            self._is_stopped = True

    def write(self, entries: Sequence[Entry], *, ends_transaction: bool = False) -> None:
        """One batch, durable on return: all or none.

        ``ends_transaction``: it may take the space that is kept free for that.
        AppendOutcomeUnknown: see the module. Anything else that is raised wrote nothing.
        """
        if not self.exists:
            self._create()
        log = self._log()
        columns = RecordColumns.of(
            [encode_key(key) for key, _ in entries],
            [_encode_value(value) for _, value in entries],
            self._manager.seams.clock.wall_ms(),
        )
        records = validate_built(
            build_plain_batch(columns),
            log.config,
            self._manager.seams.clock.wall_ms(),
            max_decompressed_bytes=self._config.max_decompressed_batch_bytes,
        )
        command = (
            CoordinatorAppendCommand(log, records)
            if ends_transaction
            else AppendCommand(log, records, Acks.ALL, None, None)
        )
        try:
            self._manager.unit_of(log).writer.run(command)
        except AppendOutcomeUnknown:
            self._is_torn = self._is_torn or log.is_broken
            raise

    def flush(self) -> None:
        """All that was written is durable on return. StorageFault, NotReady.

        LogDirOffline until a restart once nobody can tell what was written.
        """
        log = self._log()
        if self._is_torn:
            raise LogDirOffline(
                f"A record of {SINK_STATE_TOPIC} was written in part and could not be cut off: "
                "restart the daemon, whose load tells whether it is there",
                log_dir=self._manager.unit_of(log).log_dir.path,
            )
        self._manager.unit_of(log).writer.run(FlushCommand(log))

    def read(self, apply: Callable[[Entry], None]) -> None:
        """Every record in order, durable before it is given to anybody.

        CorruptData, StorageFault, NotReady when the daemon stops.
        """
        if not self.exists:
            return
        self.flush()
        log = self._log()
        log_dir = self._manager.unit_of(log).log_dir
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            with self._reads, log_dir.guard():
                if self._is_stopped:
                    raise NotReady("The daemon is stopping")
                found = log.read(offset, _READ_BYTES, Isolation.LOG_END)
            self._read_batches(log, memoryview(found.data), apply)
            if found.next_offset <= offset:
                break  # nothing but a gap of compaction is left
            offset = found.next_offset

    # ---- parts

    def _log(self) -> UnifiedLog:
        return self._manager.log_of(SINK_STATE_TOPIC, 0)

    def _create(self) -> None:
        """Make the topic unless it exists; durable on return."""
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "segment.bytes": str(self._config.transaction_state_log_segment_bytes),
        }
        with self._manager.topics.lock:
            self._manager.check_ready()
            if not self.exists:
                self._manager.topics.create(SINK_STATE_TOPIC, 1, overrides)

    def _read_batches(
        self, log: UnifiedLog, data: memoryview, apply: Callable[[Entry], None]
    ) -> None:
        position = 0
        while position < len(data):
            header = read_header(data[position:])
            batch = data[position : position + header.size_bytes]
            position += header.size_bytes
            try:
                for record in iterate_records(batch, self._config.max_decompressed_batch_bytes):
                    apply(_decode(record.key, record.value))
            except FormatError as error:
                raise CorruptBatch(
                    f"A record of {SINK_STATE_TOPIC} cannot be read: {error.reason}",
                    file=log.directory,
                    position=0,
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                ) from error


def _encode_value(value: Value) -> bytes | None:
    if isinstance(value, QueryValue):
        return encode_query(value)
    return None if value is None else encode_producer(value)


def _decode(key: bytes | None, data: bytes | None) -> Entry:
    """FormatError."""
    if key is None:
        raise FormatError("it has no key")
    decoded: Key = decode_key(key)
    if data is None:
        return decoded, None
    value: QueryValue | ProducerValue
    value = decode_producer(data) if isinstance(decoded, ProducerKey) else decode_query(data)
    return decoded, value
