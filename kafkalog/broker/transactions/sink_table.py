"""SinkTable: all sinks in memory, beside the log that says what is true of them.

Owns the locks of sinks, the replay at a start, and the order of a change: durable, then true, then
published to the writers (``SinkProducers``). A change whose durability is unclear waits in its sink
until a flush made it clear. A sink is changed under its lock, which is taken before any other lock;
writers and other threads read whole values.

``SinkLog`` owns the compacted topic ``__sink_state`` (created at the first write), one partition,
written synced; the meaning of its records is in ``sink.py``. A write that raises
AppendOutcomeUnknown is in the log and may be durable or not: after ``flush`` it is, and a restart
reads it or does not find it. Only a restart resolves a write of which a part was written and could
not be cut off again: from then on ``flush`` refuses, also when the log was moved meanwhile, without
the torn end. No record is skipped: a damaged or newer one would be a decision that is not carried
out.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkalog.broker.directory.commands import AppendCommand, CoordinatorAppendCommand, FlushCommand
from kafkalog.broker.transactions.sink import Sink
from kafkalog.broker.values import Acks
from kafkalog.errors import (
    AppendOutcomeUnknown,
    ConcurrentTransactions,
    CorruptBatch,
    CorruptData,
    InvalidRequest,
    LogDirOffline,
    NotReady,
    Overloaded,
)
from kafkalog.format.disk import sink_state
from kafkalog.format.disk.sink_state import ProducerKey, ProducerValue, QueryKey, QueryValue
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import RecordColumns, build_plain_batch
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import iterate_batches
from kafkalog.format.topic_names import SINK_STATE_TOPIC
from kafkalog.log.validator import validate_built
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.changes import TopicChanges
    from kafkalog.broker.transactions.append_checks import SinkProducers
    from kafkalog.broker.transactions.sink import Entry, Key, Value
    from kafkalog.log.unified_log import UnifiedLog


_READ_BYTES = 1 << 20


class SinkLog:
    """See the module. Blocking; for control threads and tasks."""

    def __init__(self, logs: Logs, runtime: Runtime, topics: TopicChanges) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._config = runtime.config
        self._topics = topics
        self._clock = runtime.clock
        # under its own mutex, held while a file is read
        self._reads = runtime.threads.mutex()
        self._is_stopped = False
        # set by a write, never reset
        self._is_torn = False  # a write left something that only a restart can resolve

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return SINK_STATE_TOPIC in self._registry.state.topics

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
            [sink_state.encode_key(key) for key, _ in entries],
            [_encode_value(value) for _, value in entries],
            self._clock.wall_ms(),
        )
        records = validate_built(
            build_plain_batch(columns),
            log.config,
            self._clock.wall_ms(),
            max_decompressed_bytes=self._config.max_decompressed_batch_bytes,
        )
        command = (
            CoordinatorAppendCommand(log, records)
            if ends_transaction
            else AppendCommand(log, records, Acks.ALL, None, None)
        )
        try:
            self._logs.unit_of(log).writer.run(command)
        except AppendOutcomeUnknown:
            self._is_torn = self._is_torn or log.is_broken
            raise

    def flush(self) -> None:
        """All that was written is durable on return. StorageFault, NotReady.

        LogDirOffline until a restart once it is unknown what was written.
        """
        log = self._log()
        if self._is_torn:
            raise LogDirOffline(
                f"A record of {SINK_STATE_TOPIC} was written in part and could not be cut off: "
                "restart the daemon, whose load tells whether it is there",
                log_dir=self._logs.unit_of(log).log_dir.path,
            )
        self._logs.unit_of(log).writer.run(FlushCommand(log))

    def read(self, apply: Callable[[Entry], None]) -> None:
        """Every record in order, durable before it is given to anybody.

        CorruptData, StorageFault, NotReady when the daemon stops.
        """
        if not self.exists:
            return
        self.flush()
        log = self._log()
        log_dir = self._logs.unit_of(log).log_dir
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            with self._reads, log_dir.guard():
                if self._is_stopped:
                    raise NotReady("The daemon is stopping")
                found = log.read(offset, _READ_BYTES, Isolation.LOG_END)
            self._read_batches(log, found.data, apply)
            if found.next_offset <= offset:
                break  # nothing but a gap of compaction is left
            offset = found.next_offset

    # ---- parts

    def _log(self) -> UnifiedLog:
        return self._logs.log_of(SINK_STATE_TOPIC, 0)

    def _create(self) -> None:
        """Make the topic unless it exists; durable on return."""
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "max.message.bytes": str(sink_state.MAX_MESSAGE_BYTES),
            "segment.bytes": str(self._config.transaction_state_log_segment_bytes),
        }
        with self._registry.edit():
            if not self.exists:
                self._topics.create(SINK_STATE_TOPIC, 1, overrides)

    def _read_batches(
        self, log: UnifiedLog, batches: bytes | memoryview, apply: Callable[[Entry], None]
    ) -> None:
        for header, batch in iterate_batches(batches):
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
        return sink_state.encode_query(value)
    return None if value is None else sink_state.encode_producer(value)


def _decode(key: bytes | None, data: bytes | None) -> Entry:
    """FormatError."""
    if key is None:
        raise FormatError("it has no key")
    decoded: Key = sink_state.decode_key(key)
    if data is None:
        return decoded, None
    value: QueryValue | ProducerValue
    value = (
        sink_state.decode_producer(data)
        if isinstance(decoded, ProducerKey)
        else sink_state.decode_query(data)
    )
    return decoded, value


LOAD_TASK = "kafkalog-sinks-load"
SINKS_MAX = 10_000
# As long as any number of begins takes, and short for a call that waits for a disk that hangs.
LOCK_SECONDS = 5.0


class SinkTable:
    """See the module."""

    def __init__(
        self,
        log: SinkLog,
        producers: SinkProducers,
        logs: Logs,
        runtime: Runtime,
        after_load: Callable[[], None],
    ) -> None:
        """``after_load`` does what a crash interrupted; on the thread of the load."""
        # constant after construction
        self._log = log
        self.producers = producers
        self._registry = logs.registry
        self._runtime = runtime
        self._after_load = after_load
        self._mutex = runtime.threads.mutex()
        # published; changed under the mutex
        self._sinks: dict[str, Sink] = {}
        self._is_loading = False

    # ---- start and stop

    def start(self) -> None:
        """Read the log in the background; every call is NotReady until then."""
        if self._log.exists:
            self.schedule_load()
        else:
            self.producers.is_loaded = True

    def stop(self) -> None:
        """No file of the topic is read any more on return."""
        self._log.stop()

    def check_loaded(self) -> None:
        """NotReady while the log is read, or what keeps it from being read; CorruptData: a load's.

        The next load follows all the same: the file may have been repaired.
        """
        if self.producers.is_loaded:
            return
        self._registry.check_ready()
        self._log.check()
        damage = self.producers.damage
        self.schedule_load()
        if damage is not None:
            raise damage.with_traceback(None)
        raise NotReady("The sinks are being loaded")

    def schedule_load(self) -> None:
        """Unless it is loaded or on the way. A failure is tried again at the next call."""
        with self._mutex:
            if self._is_loading or self.producers.is_loaded:
                return
            self._is_loading = True
        self._runtime.scheduler.schedule_once(LOAD_TASK, self._load, 0)

    def _load(self) -> None:
        sinks: dict[str, Sink] = {}

        def apply(entry: Entry) -> None:
            query = entry[0].query
            if query not in sinks:
                sinks[query] = self._new_sink(query)
            sinks[query].apply((entry,))

        try:
            self.producers.damage = None
            self._log.read(apply)
            with self._mutex:
                self._sinks = {name: sink for name, sink in sinks.items() if not sink.is_empty}
            for sink in self.all():
                self.producers.publish(sink, sink.producers.values())
            self.producers.is_loaded = True
        except CorruptData as damage:
            self.producers.damage = damage
            raise
        finally:
            with self._mutex:
                self._is_loading = False
        self._after_load()

    # ---- look-ups, any thread

    def all(self) -> list[Sink]:
        """By name."""
        return sorted(self.unordered(), key=lambda sink: sink.name)

    def unordered(self) -> list[Sink]:
        """In no order, for who counts; any thread."""
        return list(self._sinks.copy().values())

    def find(self, query: str) -> Sink | None:
        """The sink of a query that has begun something."""
        sink = self._sinks.get(query)
        return None if sink is None or sink.is_empty else sink

    # ---- changes

    @contextmanager
    def lock(self, query: str) -> Iterator[Sink]:
        """The sink of a query, locked against other changes; created when there is none.

        Waits ``LOCK_SECONDS`` for another call of it. ConcurrentTransactions then; InvalidRequest
        for its name, Overloaded, and what ``check_loaded`` raises.
        """
        with self.try_lock(query, LOCK_SECONDS) as sink:
            if sink is None:
                raise ConcurrentTransactions(
                    f"Another call of query {query} is at work, for more than {LOCK_SECONDS} s"
                )
            yield sink

    @contextmanager
    def try_lock(self, query: str, seconds: float = 0) -> Iterator[Sink | None]:
        """As ``lock``, for callers that try again later: None while another call is at work."""
        fault = sink_state.query_name_fault(query)
        if fault is not None:
            raise InvalidRequest(fault)
        self.check_loaded()
        while True:
            sink = self._sink_of(query)
            if not sink.lock.acquire(timeout=seconds):
                yield None
                return
            try:
                if self._sinks.get(query) is not sink:
                    continue  # it was forgotten while we waited
                try:
                    yield sink
                finally:
                    if sink.is_empty:
                        with self._mutex:
                            del self._sinks[query]
                return
            finally:
                sink.lock.release()

    def write(self, sink: Sink, entries: Sequence[Entry]) -> None:
        """Make records durable, then true; under the lock.

        After AppendOutcomeUnknown they may be durable: ``reconcile`` tells. Anything else that is
        raised changed nothing.
        """
        assert not sink.unsettled, "what is unclear is settled first"
        # What ends an open batch. Its begin took no reserve, so neither has it much to ask for.
        ends_transaction = bool(sink.open or sink.is_decided) and all(
            isinstance(key, QueryKey) for key, _ in entries
        )
        try:
            self._log.write(entries, ends_transaction=ends_transaction)
        except AppendOutcomeUnknown:
            sink.unsettled = tuple(entries)
            raise
        self._apply(sink, entries)

    def reconcile(self, sink: Sink) -> None:
        """Make true what was written before; under the lock. StorageFault: it stays unclear."""
        if not sink.unsettled:
            return
        self._log.flush()
        entries, sink.unsettled = sink.unsettled, ()
        self._apply(sink, entries)

    def _apply(self, sink: Sink, entries: Sequence[Entry]) -> None:
        for key, value in entries:
            former = sink.producers.get(key) if isinstance(key, ProducerKey) else None
            sink.apply(((key, value),))
            if isinstance(key, QueryKey):
                self.producers.publish(sink, sink.producers.values())
            elif isinstance(value, ProducerValue):
                self.producers.publish(sink, (value,))
            id_now = value.producer_id if isinstance(value, ProducerValue) else None
            if former is not None and former.producer_id != id_now:
                self.producers.forget(former.producer_id)

    def _sink_of(self, query: str) -> Sink:
        with self._mutex:
            sink = self._sinks.get(query)
            if sink is None:
                if len(self._sinks) >= SINKS_MAX:
                    raise Overloaded(f"{SINKS_MAX} queries are known; nothing was done")
                sink = self._sinks[query] = self._new_sink(query)
            return sink

    def _new_sink(self, query: str) -> Sink:
        return Sink(query, self._runtime.threads.mutex(), self._runtime.clock.monotonic_ns())
