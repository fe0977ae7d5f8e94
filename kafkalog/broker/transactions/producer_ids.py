"""ProducerIds: producer ids and epochs for idempotent clients, and the fence of older epochs.

Ids come in blocks of 1000, as Kafka's controller gives them: the end of a block is durable in the
topic registry of every online log directory before the first id of it is given. A crash skips what
was left of a block; no id is given twice. They begin at 2^40: an adopted directory holds ids of its
Kafka, which counts from 0, also in records whose producers no log remembers any more, and goes on
counting there when it gets the directory back. What a log knows in a block is left out all the
same (a registry that was lost), and a restored backup goes on far behind what it says.

An epoch is durable before it is given, and from then on every log refuses batches of an older one
on its writer. Epochs are forgotten ``producer.id.expiration.ms`` after they were given when no log
remembers the producer either: what Kafka's logs remember of one lives as long. What is forgotten is
no fence any more, but it is not given again: the newest of all that were forgotten stays, and who
is not remembered goes on behind it.

Threads: any that may block; one change at a time under a mutex, which is taken before the lock of
the registry. Source: Kafka's ProducerIdControlManager, RPCProducerIdManager, TransactionManager
(epochs).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, operation_class, requires
from kafkalog.broker.directory.unit import drain_barrier
from kafkalog.broker.topics.registry import RETIRED, ProducerEpoch
from kafkalog.broker.transactions.markers import COORDINATOR_EPOCH, LogTransaction
from kafkalog.errors import InvalidTxnState, Overloaded, UnknownProducer
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.records.control_record import ControlRecordType
from kafkalog.log.values import NO_PRODUCER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.broker.transactions.append_checks import SinkProducers
    from kafkalog.broker.transactions.markers import SinkTransactions
    from kafkalog.log.state.producer_state import ProducerStateEntry
    from kafkalog.log.unified_log import UnifiedLog

_log = structlog.get_logger(__name__)

FIRST_PRODUCER_ID = 1 << 40
BLOCK_IDS = 1000
# More than anybody is given between a backup and its restore: four million writes of the registry.
_BACKUP_IDS = 1 << 32
# Fenced producers in the registry: half a megabyte of the file, which each change writes.
_EPOCHS_MAX = 10_000


class ProducerIdentity(NamedTuple):
    """What a producer writes into its batches."""

    producer_id: int
    producer_epoch: int


def past_backup(state: RegistryState) -> RegistryState:
    """The same generation as a restore has it: ids that were given after the backup are skipped."""
    next_id = max(state.next_producer_id, FIRST_PRODUCER_ID) + _BACKUP_IDS
    return replace(state, next_producer_id=next_id)


class AbortedTransaction(NamedTuple):
    """A transaction that has ended; committed records are readable to the last stable offset."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_stable_offset: int


@operation_class()
class ProducerIds:
    """See the module. Blocking but for ``describe``."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        sink_producers: SinkProducers,
        transactions: SinkTransactions,
        check_sinks_loaded: Callable[[], None],
    ) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._sink_producers = sink_producers
        self._transactions = transactions
        self._check_sinks_loaded = check_sinks_loaded
        self._clock = runtime.clock
        self._expiration_ms = runtime.config.producer_id_expiration_ms
        self._mutex = runtime.threads.mutex()
        # under the mutex
        self._free: deque[int] = deque()  # of the newest block, not given yet

    @internal
    def were_given(self, producer_id: int) -> bool:
        """Whether it is one of ours, not an adopted Kafka's; any thread."""
        return FIRST_PRODUCER_ID <= producer_id < self._registry.state.next_producer_id

    @internal
    def newest_epoch_in_logs(self, producer_id: int) -> int:
        """The newest that a served log remembers, NO_PRODUCER_EPOCH when none does; any thread.

        What is given next has to be newer, whatever was written down of what was given: a restored
        backup may have that of an earlier moment than its logs, where a batch of an old epoch would
        be taken for a repetition. No disk; costs a look at each log.
        """
        entries = [log.producers.entries.get(producer_id) for log in self._logs.table.logs()]
        epochs = [entry.producer_epoch for entry in entries if entry is not None]
        return max(epochs, default=NO_PRODUCER_EPOCH)

    @requires(Action.WRITE, Resource.CLUSTER)
    def allocate(self) -> ProducerIdentity:
        """A new id at epoch 0; StorageFault, NotReady. Crash: it is skipped."""
        self._registry.check_ready()
        with self._mutex:
            return self._allocate()

    @requires(Action.WRITE, Resource.CLUSTER)
    def bump(self, producer_id: int) -> ProducerIdentity:
        """The next epoch of the id, older ones refused by every log on return; else a new id.

        A producer whose epochs are used up takes no records any more, and the answer is another id
        at epoch 0. UnknownProducer, InvalidTxnState for a sink's, Overloaded when too many were
        bumped lately, StorageFault, NotReady. Crash: the older epochs may be fenced though nobody
        was told.
        """
        self._registry.check_ready()
        self._sink_producers.check_awaited()
        if self._sink_producers.owner_of(producer_id) is not None:
            raise InvalidTxnState(
                f"Producer {producer_id} is a sink's: a begin of its batch gives the next epoch"
            )
        with self._mutex:
            epoch = self._current_epoch(producer_id) + 1
            if epoch <= INT16_MAX:
                self._fence(producer_id, epoch)
                return ProducerIdentity(producer_id, epoch)
            successor = self._allocate()
            self._fence(producer_id, RETIRED)
            return successor

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
        """InvalidTxnState: a sink decides on it, maybe has; NotReady while the sinks are loaded."""
        if producer_id >= FIRST_PRODUCER_ID:
            self._check_sinks_loaded()
        if self._sink_producers.owner_of(producer_id) is not None:
            raise InvalidTxnState(
                f"Producer {producer_id} is a sink's: abort the batch of its query",
                producer_id=producer_id,
            )

    # ---- under the mutex

    def _allocate(self) -> ProducerIdentity:
        if not self._free:
            self._free.extend(self._take_block())
        return ProducerIdentity(self._free.popleft(), 0)

    def _take_block(self) -> list[int]:
        """The ids of the next block, durably taken."""
        self._sink_producers.check_awaited()
        known = self._known_ids()
        with self._registry.edit() as state:
            end = max(state.next_producer_id, FIRST_PRODUCER_ID)
            block: list[int] = []
            while not block:
                end += BLOCK_IDS
                block = [each for each in range(end - BLOCK_IDS, end) if each not in known]
            self._registry.change(state.with_next_producer_id(end))
        return block

    def _current_epoch(self, producer_id: int) -> int:
        """The newest that was given or that a log has seen; UnknownProducer."""
        seen, state = self.newest_epoch_in_logs(producer_id), self._registry.state
        is_known = self.were_given(producer_id) or producer_id in state.producer_epochs
        if not (is_known or seen != NO_PRODUCER_EPOCH) or producer_id in self._free:
            message = f"No producer has the id {producer_id}"
            raise UnknownProducer(message, producer_id=producer_id)
        given = state.producer_epochs.get(producer_id)
        return max(state.forgotten_epoch if given is None else given.epoch, seen, 0)

    def _fence(self, producer_id: int, epoch: int) -> None:
        """Durable, and no append that was checked before it is still on its way."""
        with self._registry.edit() as state:
            now_ms, epochs = self._clock.wall_ms(), state.producer_epochs
            expired_ms = now_ms - self._expiration_ms
            expired = {each for each, given in epochs.items() if given.since_ms <= expired_ms}
            if expired:  # but for those that a log remembers
                expired -= self._known_ids()
            kept = {each: given for each, given in epochs.items() if each not in expired}
            kept[producer_id] = ProducerEpoch(epoch, now_ms)
            if len(kept) > _EPOCHS_MAX:
                raise Overloaded(f"{_EPOCHS_MAX} producers were bumped lately; nothing was done")
            self._registry.change(state.with_producer_epochs(kept))
        drain_barrier(self._logs.online_units)

    def _known_ids(self) -> set[int]:
        """Producers that some served log remembers."""
        known: set[int] = set()
        for log in self._logs.table.logs():
            known.update(list(log.producers.entries))
        known.update(self._sink_producers.ids())
        return known


def _none_begins(log: UnifiedLog, start_offset: int) -> InvalidTxnState:
    return InvalidTxnState(
        f"No open transaction begins at offset {start_offset} of {log.topic_partition}",
        first_open_offset=min(log.producers.open_transactions(), default=None),
    )
