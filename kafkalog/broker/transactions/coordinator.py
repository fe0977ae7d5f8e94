"""Sinks: the coordinator of queries that write exactly once. One narrow job, nothing more general.

A query writes batch after batch. Each attempt of a task *begins* with its own producer, whose
epoch grows with every begin, and appends transactional batches. One *commit* names the attempts
that won; the others of the batch are aborted. Each batch of a query is committed once, in order.

    begin    producer record, synced ─► older epochs refused, queues passed ─► their ABORT markers
    commit   closed ─► queues passed ─► checked ─► data synced ─► PREPARE_COMMIT, synced: committed
             ─► COMMIT markers of the winners ─► ABORT of the others, where it can be written
             ─► COMPLETE_COMMIT
    abort    PREPARE_ABORT, synced ─► closed, queues passed ─► ABORT markers

PREPARE_COMMIT in ``__sink_state`` is the commit point. What follows it is repeated from that
record, by a start, by the next call of the query and by a task, until it succeeds: a marker is
written only where the transaction is open. So everything that is open in a log under one of our
producer ids, and neither of an open batch nor decided, is orphaned and aborted, whatever failed
before.

A crash anywhere leaves the former state or the next; a call whose outcome is unclear is repeated.
A batch without a begin or append for ``transaction.max.timeout.ms`` is aborted.

Threads: what a query's calls change is under the lock of its sink, which is taken before any other
lock. Differs from Kafka's coordinator (TransactionCoordinator, TransactionStateManager 4.1): one
decision for many producers, and time-out by idleness.

Expiry: a commit distinguishes a repeated batch from a new one and costs sixty
bytes. It is kept as long as fewer than ``SILENT_KEPT_MAX`` queries were active since, or
``CROWDED`` within the week: then a day without a call is enough, before all new queries would be
refused. The cost is the producers, one for each attempt at a part of the data: each is deleted when
it was not begun for ``transactional.id.expiration.ms``; a later attempt gets another one. A query
that said with its last batch that it is over (``df.write``) keeps none from then on, and its commit
for some hours, in which a task of it may still run or its driver may ask again.

Ages are those of the wall clock, without its jumps ahead since the daemon started: a clock that is
set wrong is put right long before the jump is forgotten. After a restart with a wrong clock the
producers and the ended queries are deleted, but no commit of a stream.
Source: Kafka's TransactionStateManager, which forgets the whole transactional id.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, lists, operation_class, requires
from kafkalog.broker.clock_guard import ClockGuard
from kafkalog.broker.directory.unit import drain_barrier
from kafkalog.broker.transactions.producer_ids import ProducerIdentity
from kafkalog.broker.transactions.sink import (
    ANONYMOUS,
    Caller,
    LastSequence,
    check_last_sequence,
    check_not_older,
    check_winners,
)
from kafkalog.broker.transactions.sink_table import SinkLog, SinkTable
from kafkalog.errors import InvalidTxnState, KafkalogError, Overloaded, UnknownSink, work_on_each
from kafkalog.format.disk.sink_state import (
    NO_BATCH,
    ProducerKey,
    ProducerValue,
    QueryKey,
    QueryValue,
    SinkState,
    Winner,
)
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.records.control_record import ControlRecordType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.transactions.append_checks import SinkProducers
    from kafkalog.broker.transactions.markers import LogTransaction, SinkTransactions
    from kafkalog.broker.transactions.producer_ids import ProducerIds
    from kafkalog.broker.transactions.sink import Key, Sink, SinkDescription
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog


SILENT_KEPT_MAX = 5_000
CROWDED = 9_000  # nine tenths of SINKS_MAX: an hour's new queries have room until the next look
CROWDED_KEPT_MS = 24 * 3_600_000
ENDED_KEPT_MAX = 2_000
ENDED_KEPT_MS = 3 * 3_600_000

_TOMBSTONES = 500  # a batch of them stays far below max.message.bytes

_log = structlog.get_logger(__name__)


def expired_producers(sink: Sink, expired_ms: int) -> list[ProducerKey]:
    """Of those with nothing open, who were begun last at that time or before; of an ended sink all.

    Pure.
    """
    producers, opened = sink.producers.copy(), sink.open
    return [
        key
        for key, value in producers.items()
        if value.producer_id not in opened and (sink.is_over or value.timestamp_ms <= expired_ms)
    ]


def expired_queries(sinks: Sequence[Sink], now_ms: int, expiration_ms: int) -> list[Sink]:
    """Those that ended some hours ago, and of the silent ones who never committed or are too many.

    Pure. The silent ones that have been so for the longest go first; those of a day when there are
    so many queries that new ones would be refused soon.
    """
    ended = [
        sink
        for sink in sinks
        if sink.is_over and sink.changed_ms <= now_ms - min(ENDED_KEPT_MS, expiration_ms)
    ]
    others = [sink for sink in set(sinks).difference(ended) if not (sink.open or sink.is_decided)]
    others.sort(key=lambda sink: sink.changed_ms)

    def longest_silent(silent_ms: int, kept_max: int) -> list[Sink]:
        surplus = max(len(sinks) - len(ended) - kept_max, 0)
        return [sink for sink in others[:surplus] if sink.changed_ms <= now_ms - silent_ms]

    without_commit = {
        sink
        for sink in others
        if sink.committed_batch_id == NO_BATCH and sink.changed_ms <= now_ms - expiration_ms
    }
    return [
        *ended,
        *without_commit.union(
            longest_silent(expiration_ms, SILENT_KEPT_MAX),
            longest_silent(min(CROWDED_KEPT_MS, expiration_ms), CROWDED),
        ),
    ]


def surplus_ended(sinks: Iterable[Sink]) -> list[Sink]:
    """Ended sinks beyond the newest ``ENDED_KEPT_MAX``. Pure."""
    ended = sorted((sink for sink in sinks if sink.is_over), key=lambda sink: sink.changed_ms)
    return ended[: max(len(ended) - ENDED_KEPT_MAX, 0)]


ABORT_TASK = "transaction-abort"  # Kafka's names
EXPIRY_TASK = "transactionalId-expiration"
PRODUCERS_MAX = 20_000  # of one sink
PRODUCERS_ALL_MAX = 200_000  # half a KiB of memory each


@operation_class()
class Sinks:
    """See the module. Blocking but for the descriptions."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        log: SinkLog,
        sink_producers: SinkProducers,
        producer_ids: ProducerIds,
        transactions: SinkTransactions,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._runtime = runtime
        self._idle_max_ms = runtime.config.transaction_max_timeout_ms
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._producers = sink_producers
        self._table = SinkTable(log, sink_producers, logs, runtime, self.reconcile_once)
        self._expiration_ms = runtime.config.transactional_id_expiration_ms
        self._clock_guard = ClockGuard(runtime.threads.mutex(), self._expiration_ms)
        # owned by the task: queries that a call was at work with, in how many looks in a row
        self._looks_at_work: dict[str, tuple[QueryValue | None, int]] = {}
        metrics = runtime.metrics
        sinks = self._table.unordered
        metrics.sink_transactions_open.set_function(lambda: sum(len(each.open) for each in sinks()))
        metrics.sinks_committing.set_function(lambda: len(self._decided_ms()))
        metrics.sink_committing_age_seconds.set_function(self._committing_seconds)

    # ---- the daemon's own

    @internal
    def start(self) -> None:
        """Read the state in the background; until then every call is NotReady."""
        self._adjusted_ms()  # from now on a jump of the clock is seen
        self._table.start()

    @internal
    def stop(self) -> None:
        """No file of the topic is read any more on return."""
        self._table.stop()

    @internal
    def check_loaded(self) -> None:
        """See SinkTable: ``owns`` answers for all sinks from here on."""
        self._table.check_loaded()

    @internal
    def reconcile_once(self) -> None:
        """Abort what is idle for too long, and do again what earlier calls left. Loop body."""
        if not self._producers.is_loaded:
            self._table.schedule_load()
            return
        works: list[Callable[[], None]] = [
            *(functools.partial(self._tend, sink) for sink in self._table.all()),
            self._abort_orphaned,
            *map(self._forgetting, surplus_ended(self._table.all())),
        ]
        work_on_each(works, lambda work: work())

    @internal
    def expire_once(self) -> None:
        """Forget what has not been used for ``transactional.id.expiration.ms``. Loop body."""
        if not self._producers.is_loaded:
            return
        sinks, now_ms = self._table.all(), self._adjusted_ms()
        expired_ms = now_ms - self._expiration_ms
        queries = expired_queries(sinks, now_ms, self._expiration_ms)
        others = set(sinks).difference(queries)
        works: list[Callable[[], None]] = [
            *map(self._forgetting, queries),
            *(
                functools.partial(self._forget_expired, sink, expired_ms)
                for sink in sinks
                if sink in others and expired_producers(sink, expired_ms)
            ),
        ]
        work_on_each(works, lambda work: work())

    # ---- calls of a query

    @requires(Action.WRITE, Resource.SINK, "query")
    def begin(
        self, query: str, batch_id: int, partition_id: int, attempt: int, caller: Caller = ANONYMOUS
    ) -> ProducerIdentity | None:
        """A producer for an attempt to write one partition of a batch; None: it is committed.

        Durable, and older epochs of the producer are refused, on return. An open batch with a lower
        id, or of a former run, is aborted. ProducerFenced when a higher one is open or committed,
        for a former run, and for a call that came after a newer one; InvalidRequest, Overloaded,
        StorageFault, NotReady. A repetition gives the next epoch, or the same when it says of which
        call it is one.
        """
        with self._table.lock(query) as sink:
            is_committed = self._is_committed(sink, batch_id)
            check_not_older(sink, batch_id)
            if is_committed:
                return None
            sink.runs.check(query, caller.run_id)
            self._reconcile(sink)
            opened = sink.open_batch_id
            if opened is not None and (opened < batch_id or sink.runs.is_other(caller.run_id)):
                self._abort(sink, "superseded")
            key = ProducerKey(query, partition_id, attempt)
            former = sink.producers.get(key)
            if former is None:
                self._check_room(sink)
            was_open = former is not None and former.producer_id in sink.open
            if former is not None and was_open and sink.runs.is_repeated(query, key, caller):
                return ProducerIdentity(former.producer_id, former.producer_epoch)
            identity = self._next_identity(former)
            now_ms = self._runtime.clock.wall_ms()
            self._table.write(sink, [(key, ProducerValue(*identity, batch_id, now_ms))])
            sink.runs.note(key, caller)
            sink.used_ns = self._runtime.clock.monotonic_ns()
            if was_open:
                drain_barrier(self._logs.online_units)
                self._try_later(sink, lambda: self._abort_orphaned(sink))
            return identity

    @requires(Action.WRITE, Resource.SINK, "query")
    def commit(
        self,
        query: str,
        batch_id: int,
        winners: Sequence[Winner],
        last_sequences: Sequence[LastSequence] = (),
        *,
        is_last: bool = False,
        run_id: str | None = None,
    ) -> None:
        """Commit what these producers wrote, in exactly these partitions, and abort the rest.

        ``last_sequences``: where given, nothing is committed unless the log has them.
        ``is_last``: no batch of the query follows, and little of it is kept (see Expiry).
        ``run_id``: a former run of the query (see SinkRuns) is fenced.
        Decided and durable on return; markers that could not be written yet follow by themselves.
        Nothing happens when it is the batch that was committed last. Raised when nothing was
        committed: InvalidProducerIdMapping, ProducerFenced, InvalidTxnState, InvalidRequest,
        UnknownPartition, StorageFault, NotReady, Overloaded. After AppendOutcomeUnknown it may be:
        repeat the call.
        """
        with self._table.lock(query) as sink:
            is_committed = self._is_committed(sink, batch_id)
            check_not_older(sink, batch_id)
            if is_committed:
                self._try_later(sink, lambda: self._reconcile(sink))
                return
            sink.runs.check(query, run_id)
            self._reconcile(sink)
            check_winners(sink, batch_id, winners)
            self._close(sink)
            self._check_written(winners)
            for last in last_sequences:
                producers = self._log_of(last.at).producers
                check_last_sequence(last, producers.entries.get(last.producer_id))
            logs = {self._log_of(at) for winner in winners for at in winner.partitions}
            self._transactions.flush(logs)
            state = SinkState.PREPARE_LAST_COMMIT if is_last else SinkState.PREPARE_COMMIT
            value = QueryValue(state, batch_id, self._runtime.clock.wall_ms(), tuple(winners))
            self._table.write(sink, [(QueryKey(query), value)])
            self._try_later(sink, lambda: self._reconcile(sink))

    @requires(Action.WRITE, Resource.SINK, "query")
    def abort(self, query: str, batch_id: int, *, run_id: str | None = None) -> None:
        """Abort what was begun of a batch: durable on return, its producers closed.

        Nothing happens when nothing of it is open. InvalidTxnState when it is committed;
        ProducerFenced for a former run, whose batch it is no more; StorageFault, NotReady.
        """
        with self._table.lock(query) as sink:
            if self._is_committed(sink, batch_id):
                raise InvalidTxnState(
                    f"Batch {batch_id} of query {query} is committed",
                    committed_batch_id=sink.committed_batch_id,
                )
            sink.runs.check(query, run_id)
            self._reconcile(sink)
            if sink.open_batch_id == batch_id:
                self._abort(sink, "requested")

    @lists(Resource.SINK)
    def describe_all(self) -> list[SinkDescription]:
        """Every sink by name. NotReady while they are loaded."""
        self._table.check_loaded()
        return [sink.describe() for sink in self._table.all() if not sink.is_empty]

    @requires(Action.DESCRIBE, Resource.SINK, "query")
    def describe(self, query: str) -> SinkDescription:
        """One sink. UnknownSink, NotReady while they are loaded."""
        self._table.check_loaded()
        sink = self._table.find(query)
        if sink is None:
            raise UnknownSink(f"Query {query} has begun no batch here", query=query)
        return sink.describe()

    # ---- parts of the calls, under the lock of the sink

    def _is_committed(self, sink: Sink, batch_id: int) -> bool:
        """Whether it, or a later one, is; StorageFault while that is unclear."""
        if batch_id > sink.committed_batch_id:
            self._table.reconcile(sink)
        return batch_id <= sink.committed_batch_id

    def _check_room(self, sink: Sink) -> None:
        """For a producer more. Overloaded."""
        if len(sink.producers) >= PRODUCERS_MAX:
            raise Overloaded(f"Query {sink.name} has {PRODUCERS_MAX} producers; nothing was done")
        if len(self._producers) >= PRODUCERS_ALL_MAX:
            raise Overloaded(f"All queries have {PRODUCERS_ALL_MAX} producers; nothing was done")

    def _next_identity(self, former: ProducerValue | None) -> ProducerIdentity:
        """An epoch that no log has seen, or another id when there is none."""
        ids = self._producer_ids
        if former is not None:
            newest = max(former.producer_epoch, ids.newest_epoch_in_logs(former.producer_id))
            if newest < INT16_MAX:
                return ProducerIdentity(former.producer_id, newest + 1)
        return ids.allocate()

    def _check_written(self, winners: Sequence[Winner]) -> None:
        """That each has an open transaction in the partitions that are named, and in no other."""
        written: dict[tuple[int, int], set[TopicPartition]] = {}
        for log, producer_id, producer_epoch in self._transactions.opened():
            written.setdefault((producer_id, producer_epoch), set()).add(log.topic_partition)
        for winner in winners:
            found = written.get((winner.producer_id, winner.producer_epoch), set())
            for at in winner.partitions:
                self._log_of(at)
            for at in found.symmetric_difference(winner.partitions):
                what = "not named" if at in found else "named, but has nothing of it"
                raise InvalidTxnState(
                    f"Partition {at} of producer {winner.producer_id} is {what}: nothing was "
                    "committed",
                    producer_id=winner.producer_id,
                    topic=at.topic,
                    partition=at.partition,
                )

    def _close(self, sink: Sink) -> None:
        """No append of the open batch is taken any more, and none is on its way."""
        self._producers.close(sink)
        drain_barrier(self._logs.online_units)

    def _abort(self, sink: Sink, reason: str) -> None:
        """Abort the open batch; markers that cannot be written now follow."""
        value = QueryValue(
            SinkState.PREPARE_ABORT, sink.committed_batch_id, self._runtime.clock.wall_ms()
        )
        self._table.write(sink, [(QueryKey(sink.name), value)])
        self._runtime.metrics.sink_aborts.labels(reason).inc()
        drain_barrier(self._logs.online_units)
        self._try_later(sink, lambda: self._abort_orphaned(sink))

    def _reconcile(self, sink: Sink) -> None:
        """What earlier calls left: an unclear write, the markers of a decision; raises its fault.

        In this order also after a crash: the decision, its markers, then the record that they are
        there. A decision is complete before anything else is begun: its record closes all. What
        lost holds nothing up: wherever it is still open it is orphaned, and the task aborts it.
        """
        self._table.reconcile(sink)
        if sink.is_decided:
            self._complete(sink)
        if sink.is_over and sink.producers:
            now_ms = self._runtime.clock.wall_ms()
            expired = expired_producers(sink, now_ms)
            self._try_later(sink, lambda: self._write_tombstones(sink, expired))

    def _complete(self, sink: Sink) -> None:
        """The markers of a decision, and the record that they are there."""
        self._transactions.commit(sink.winners)
        self._try_later(sink, lambda: self._abort_orphaned(sink))
        complete = QueryValue(
            SinkState.DEAD if sink.is_last else SinkState.COMPLETE_COMMIT,
            sink.committed_batch_id,
            self._runtime.clock.wall_ms(),
        )
        self._table.write(sink, [(QueryKey(sink.name), complete)])
        self._runtime.metrics.sink_commits.inc()

    def _try_later(self, sink: Sink, work: Callable[[], None]) -> None:
        """What is decided is answered; what is left of it, the task does."""
        try:
            work()
        except KafkalogError as fault:
            _log.warning("sink_markers_wait", query=sink.name, reason=fault.message)

    def _tend(self, sink: Sink) -> None:
        """What the task does for one sink, unless a call holds it, which does the same."""
        found, looks = self._looks_at_work.pop(sink.name, (None, 0))
        is_left_over = sink.is_over and sink.producers
        if not (sink.unsettled or sink.is_decided or is_left_over or self._is_idle(sink)):
            return
        with self._table.try_lock(sink.name) as current:
            if current is None:
                looks = looks + 1 if found is sink.query else 1
                self._looks_at_work[sink.name] = (sink.query, looks)
                if looks == 2:
                    _log.warning("sink_call_hangs", query=sink.name)
                return
            self._reconcile(current)
            if self._is_idle(current):
                _log.warning(
                    "sink_batch_timed_out", query=sink.name, batch_id=current.open_batch_id
                )
                self._abort(current, "timed_out")

    def _is_idle(self, sink: Sink) -> bool:
        """Whether a batch has been open without a call or append for too long."""
        idle_ms = (self._runtime.clock.monotonic_ns() - sink.used_ns) // 1_000_000
        return bool(sink.open) and idle_ms >= self._idle_max_ms

    # ---- expiry

    def _adjusted_ms(self) -> int:
        """The wall clock without its jumps ahead."""
        now_ms = self._runtime.clock.wall_ms()
        return now_ms - self._clock_guard.check(now_ms, self._runtime.clock.monotonic_ns())

    def _forgetting(self, sink: Sink) -> Callable[[], None]:
        """The work of forgetting a query that has expired now."""
        planned = sink.query

        def forget() -> None:
            with self._table.try_lock(sink.name) as current:
                if current is None:
                    return  # it is heard of right now
                self._reconcile(current)
                if current.query is not planned or current.open:
                    return  # it was heard of again
                # The producers first: without them it is still known.
                self._write_tombstones(current, [*current.producers, QueryKey(current.name)])
                _log.info("sink_forgotten", query=current.name)

        return forget

    def _forget_expired(self, sink: Sink, expired_ms: int) -> None:
        """Producers of a query, unless it is heard of right now."""
        with self._table.try_lock(sink.name) as current:
            if current is not None:
                self._reconcile(current)
                self._write_tombstones(current, expired_producers(current, expired_ms))

    def _write_tombstones(self, sink: Sink, keys: Iterable[Key]) -> None:
        """Under the lock, reconciled."""
        rest = iter(keys)
        while some := list(islice(rest, _TOMBSTONES)):
            self._table.write(sink, [(key, None) for key in some])

    # ---- what is orphaned, and what is counted

    def _abort_orphaned(self, sink: Sink | None = None) -> None:
        """ABORT what is open in a log and of no open or decided batch; of one sink, or of all."""
        orphaned = [each for each in self._transactions.opened() if self._is_orphaned(each, sink)]
        self._transactions.end(orphaned, ControlRecordType.ABORT)

    def _is_orphaned(self, found: LogTransaction, sink: Sink | None) -> bool:
        """Whether we gave its id, not to another sink than this one, and no batch wants it.

        An id without an owner, as one whose epochs are used up, belongs to the sink that finds it.
        """
        log, producer_id, producer_epoch = found
        owner = self._producers.owner_of(producer_id)
        if owner is None:
            return self._producer_ids.were_given(producer_id)
        is_wanted = owner.wants(producer_id, producer_epoch, log.topic_partition)
        return (sink is None or owner is sink) and not is_wanted

    def _log_of(self, at: TopicPartition) -> UnifiedLog:
        return self._logs.log_of(at.topic, at.partition)

    def _decided_ms(self) -> list[int]:
        """Wall clock of the decisions that are not shown everywhere yet."""
        return [
            sink.query.timestamp_ms
            for sink in self._table.unordered()
            if sink.query and sink.is_decided
        ]

    def _committing_seconds(self) -> float:
        """Since the oldest of them."""
        now_ms = self._runtime.clock.wall_ms()
        return max([0, *(now_ms - each for each in self._decided_ms())]) / 1000
