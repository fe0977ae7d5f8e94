"""SinkTransactions: the transactions that are open in the logs, and the markers that end them.

The logs' own producer state says what is open: it survives restarts and moves, so nothing else has
to remember where a producer wrote. Decides nothing. Blocking; for control threads and tasks.
Source: Kafka 4.1 TransactionMarkerChannelManager, and ReplicaManager's writeTxnMarkers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkalog.broker.directory.commands import EndTransactionCommand, FlushCommand
from kafkalog.errors import UnknownPartition, first_fault
from kafkalog.format.integers import INT32_MAX
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.commands import Command
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Signal
    from kafkalog.format.disk.sink_state import Winner
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog

T = TypeVar("T")

# There is one coordinator and it never changes: Kafka's first.
COORDINATOR_EPOCH = 0


class LogTransaction(NamedTuple):
    """A producer's transaction in one log."""

    log: UnifiedLog
    producer_id: int
    producer_epoch: int


class SinkTransactions:
    """See the module."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        # constant after construction
        self._logs = logs
        self._clock = clock

    def opened(self) -> Iterator[LogTransaction]:
        """Every open one of every served log. No disk; costs a look at each log."""
        for log in self._logs.table.logs():
            for producer_id in log.producers.open_transactions().values():
                entry = log.producers.entries.get(producer_id)
                if entry is not None:
                    yield LogTransaction(log, producer_id, entry.producer_epoch)

    def commit(self, winners: Iterable[Winner]) -> None:
        """COMMIT markers in all partitions of these producers; see ``end``.

        Where a partition is not served, the fault says why; a deleted topic needs none.
        """
        named = ((winner, at) for winner in winners for at in winner.partitions)
        self._run_all(named, lambda each: self._commit_marker(*each))

    def end(
        self,
        transactions: Iterable[LogTransaction],
        kind: ControlRecordType,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> int:
        """Markers, durable on return, and how many; those that are ended already get none.

        A log refuses markers of an older coordinator than the producer's last one. All are tried;
        then the first fault is raised.
        """
        return self._run_all(transactions, lambda each: self._marker(each, kind, coordinator_epoch))

    def flush(self, logs: Iterable[UnifiedLog]) -> None:
        """All that these logs hold is durable on return; the first fault is raised."""
        self._run_all(logs, lambda log: (log, FlushCommand(log)))

    def _commit_marker(
        self, winner: Winner, at: TopicPartition
    ) -> tuple[UnifiedLog, Command] | None:
        try:
            log = self._logs.log_of(at.topic, at.partition)
        except UnknownPartition:
            return None
        transaction = LogTransaction(log, winner.producer_id, winner.producer_epoch)
        return self._marker(transaction, ControlRecordType.COMMIT)

    def _marker(
        self,
        transaction: LogTransaction,
        kind: ControlRecordType,
        coordinator_epoch: int = COORDINATOR_EPOCH,
    ) -> tuple[UnifiedLog, Command]:
        log, producer_id, producer_epoch = transaction
        now_ms = self._clock.wall_ms()
        marker = build_end_transaction_marker(
            producer_id, producer_epoch, coordinator_epoch, kind, timestamp_ms=now_ms
        )
        # No max.message.bytes of a topic keeps a transaction open.
        config = replace(log.config, max_message_bytes=INT32_MAX)
        records = validate(
            marker, config, now_ms, AppendOrigin.COORDINATOR, max_decompressed_bytes=len(marker)
        )
        return log, EndTransactionCommand(log, records, producer_id, producer_epoch)

    def _run_all(
        self, items: Iterable[T], command_of: Callable[[T], tuple[UnifiedLog, Command] | None]
    ) -> int:
        """Queue a command for each that has one, so that they share syncs, and wait for all.

        How many have a result. The first fault is raised after the last of them.
        """
        waits: list[tuple[Command, Signal]] = []

        def queue(item: T) -> None:
            found = command_of(item)
            if found is not None:
                log, command = found
                waits.append((command, self._logs.unit_of(log).writer.begin(command)))

        fault = first_fault(items, queue)
        for command, done in waits:
            done.wait()
            fault = fault or command.error
        if fault is not None:
            raise fault
        return sum(command.result is not None for command, _ in waits)
