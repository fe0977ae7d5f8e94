"""ProducerOperations: ids and epochs for idempotent producers, and what a log knows of them.

The part of the operation layer that is about producers; ``Operations`` holds it. Errors are those
of ``errors.py``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import operation_class, requires
from kafkalog.broker.transactions.markers import COORDINATOR_EPOCH, LogTransaction
from kafkalog.broker.transactions.producer_ids import FIRST_PRODUCER_ID
from kafkalog.errors import InvalidTxnState
from kafkalog.format.records.control_record import ControlRecordType

if TYPE_CHECKING:
    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.transactions.coordinator import Sinks
    from kafkalog.broker.transactions.markers import SinkTransactions
    from kafkalog.broker.transactions.producer_ids import ProducerIdentity, ProducerIds
    from kafkalog.log.state.producer_state import ProducerStateEntry
    from kafkalog.log.unified_log import UnifiedLog

_log = structlog.get_logger(__name__)


class AbortedTransaction(NamedTuple):
    """A transaction that has ended; committed records are readable to the last stable offset."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_stable_offset: int


@operation_class()
class ProducerOperations:
    """See the module. Blocking but for ``describe``."""

    def __init__(
        self, logs: Logs, producer_ids: ProducerIds, sinks: Sinks, transactions: SinkTransactions
    ) -> None:
        # constant after construction
        self._logs = logs
        self._producer_ids = producer_ids
        self._sinks = sinks
        self._transactions = transactions

    @requires(Action.WRITE, Resource.CLUSTER)
    def allocate(self) -> ProducerIdentity:
        """A producer id that was never given before, at epoch 0."""
        return self._producer_ids.allocate()

    @requires(Action.WRITE, Resource.CLUSTER)
    def bump(self, producer_id: int) -> ProducerIdentity:
        """The producer's next epoch, its older ones refused from now on; see ``ProducerIds``."""
        return self._producer_ids.bump(producer_id)

    @requires(Action.READ, Resource.TOPIC, "topic")
    def describe(self, topic: str, partition: int) -> list[ProducerStateEntry]:
        """What the log of a partition remembers of its producers, by id; no disk."""
        log = self._logs.served(topic, partition)
        return sorted(log.producers.entries.values(), key=attrgetter("producer_id"))

    @requires(Action.ALTER, Resource.CLUSTER)
    def abort_transaction(
        self, topic: str, partition: int, start_offset: int
    ) -> AbortedTransaction:
        """Abort the open transaction that begins at an offset of a log; durable on return.

        For those that an adopted directory brought along: their coordinator is not here, and
        nothing else ever ends them. InvalidTxnState when none that is open begins there, and for a
        sink's; UnknownTopic, UnknownPartition, the reason of a partition that is not served,
        StorageFault, NotReady. Crash: open or aborted, and the call may be repeated.
        """
        log = self._logs.served(topic, partition)
        opened = log.producers.open_transactions()
        entry = log.producers.entries.get(opened.get(start_offset, -1))
        if entry is None:
            raise _none_begins(log, start_offset)
        self._check_no_sink(entry.producer_id)
        transaction = LogTransaction(log, entry.producer_id, entry.producer_epoch)
        coordinator_epoch = max(entry.coordinator_epoch, COORDINATOR_EPOCH)
        if not self._transactions.end([transaction], ControlRecordType.ABORT, coordinator_epoch):
            raise _none_begins(log, start_offset)  # another call was faster
        aborted = AbortedTransaction(
            transaction.producer_id,
            transaction.producer_epoch,
            start_offset,
            log.last_stable_offset,
        )
        _log.warning("transaction_aborted", partition=str(log.topic_partition), **aborted._asdict())
        return aborted

    def _check_no_sink(self, producer_id: int) -> None:
        """InvalidTxnState: a sink decides on it, maybe has; NotReady while nobody knows."""
        if producer_id >= FIRST_PRODUCER_ID:
            self._sinks.check_loaded()
        if self._sinks.owns(producer_id):
            raise InvalidTxnState(
                f"Producer {producer_id} is a sink's: abort the batch of its query",
                producer_id=producer_id,
            )


def _none_begins(log: UnifiedLog, start_offset: int) -> InvalidTxnState:
    return InvalidTxnState(
        f"No open transaction begins at offset {start_offset} of {log.topic_partition}",
        first_open_offset=min(log.producers.open_transactions(), default=None),
    )
