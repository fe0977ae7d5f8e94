"""What a writer checks of the producer before it appends a client's batch.

``SinkProducers`` owns which epoch of which producer of a sink may append now; the SinkTable changes
it under the lock of the sink. Beyond that, no batch of a fenced epoch is appended, and a
transactional batch begins a transaction in the log or continues an open one. Each transaction of a
sink has its own epoch (``Sinks.begin``), and its sequences begin at 0 in every partition. Differs
from Kafka, where a producer keeps its epoch and its sequences over transactions, so that a log
takes a repeated batch of the former transaction for a repetition; Kafka compares the first sequence
with 0 only for transactions version 2. Writer threads; single look-ups by any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import InvalidProducerEpoch, InvalidTxnState, NotReady, OutOfOrderSequence
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.topic_names import SINK_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.broker.transactions.sink import Sink
    from kafkalog.env.clock import Clock
    from kafkalog.errors import CorruptData
    from kafkalog.format.disk.sink_state import ProducerValue
    from kafkalog.log.state.producer_state import ProducerBatch, ProducerStateEntry


class _Given(NamedTuple):
    """A producer of a sink, as the writers know it."""

    sink: Sink
    producer_epoch: int
    is_open: bool


class SinkProducers:
    """The producers of all sinks, by id."""

    def __init__(self, logs: Logs, clock: Clock) -> None:
        # constant after construction
        self._logs = logs
        self._clock = clock
        # published by the load of the SinkTable
        self.is_loaded = False
        self.damage: CorruptData | None = None  # why the last load ended
        # single operations by any thread; an entry is replaced under the lock of its sink
        self._given: dict[int, _Given] = {}

    def __len__(self) -> int:
        return len(self._given)

    def ids(self) -> list[int]:
        """Of all sinks."""
        return list(self._given)

    def owner_of(self, producer_id: int) -> Sink | None:
        """The sink of a producer."""
        given = self._given.get(producer_id)
        return None if given is None else given.sink

    def check_awaited(self) -> None:
        """NotReady while the state of the sinks is still to be read.

        One that cannot be read holds nothing up: its producers are as unknown as those of any log
        that is not served.
        """
        if self.is_loaded or self.damage is not None:
            return
        log = self._logs.table.get(SINK_STATE_TOPIC, 0)
        if log is not None and self._logs.is_online(log):
            raise NotReady("The sinks are being loaded")

    def check(self, batch: ProducerBatch, entry: ProducerStateEntry | None) -> None:
        """Raise why a client's batch of a producer may not be appended now; as ProducerCheck."""
        check_epoch(self._logs.registry.state, batch.producer_id, batch.producer_epoch)
        self.check_append(batch.producer_id, batch.producer_epoch, batch.is_transactional)
        check_transaction(batch, entry)

    def check_append(self, producer_id: int, producer_epoch: int, is_transactional: bool) -> None:
        """Raise why a client's batch of a producer may not be appended now; writer threads.

        InvalidProducerEpoch for any but the newest epoch, InvalidTxnState for what was not begun or
        is over, NotReady while the state is being read.
        """
        given = self._given.get(producer_id)
        if given is None:
            if not is_transactional:
                return
            if not self.is_loaded:
                raise NotReady("The sinks are being loaded")
            raise InvalidTxnState(
                f"Producer {producer_id} has no transaction: begin a batch of a sink first",
                producer_id=producer_id,
            )
        if producer_epoch != given.producer_epoch:
            raise InvalidProducerEpoch(
                f"Epoch {producer_epoch} of producer {producer_id} is fenced: the newest begin of "
                f"its sink gave epoch {given.producer_epoch}",
                current_epoch=given.producer_epoch,
            )
        if not given.is_open or not is_transactional:
            raise InvalidTxnState(
                f"The transaction of producer {producer_id} has ended: begin again"
                if is_transactional
                else f"Producer {producer_id} is a sink's: its batches are transactional",
                producer_id=producer_id,
            )
        given.sink.used_ns = self._clock.monotonic_ns()

    # ---- changes, under the lock of the sink

    def publish(self, sink: Sink, producers: Iterable[ProducerValue]) -> None:
        """These are the newest epochs of the sink's producers."""
        for each in producers:
            is_open = each.producer_id in sink.open
            self._given[each.producer_id] = _Given(sink, each.producer_epoch, is_open)

    def close(self, sink: Sink) -> None:
        """Refuse appends of the open batch from now on; some may be on their way."""
        for producer_id in sink.open:
            self._given[producer_id] = self._given[producer_id]._replace(is_open=False)

    def forget(self, producer_id: int) -> None:
        """No sink has the producer any more."""
        self._given.pop(producer_id, None)


def check_epoch(state: RegistryState, producer_id: int, producer_epoch: int) -> None:
    """InvalidProducerEpoch when a newer one was given out; any thread."""
    given = state.producer_epochs.get(producer_id)
    if given is None or producer_epoch >= given.epoch:
        return
    current = min(given.epoch, INT16_MAX)
    says = f"was given epoch {current}" if given.epoch <= INT16_MAX else "has no epoch left"
    raise InvalidProducerEpoch(
        f"Epoch {producer_epoch} of producer {producer_id} is fenced: the producer {says}",
        current_epoch=current,
    )


def check_transaction(batch: ProducerBatch, entry: ProducerStateEntry | None) -> None:
    """Raise why a client's transactional batch neither begins nor continues a transaction.

    OutOfOrderSequence: the log has lost what came before, as a recreated topic; the batch
    alone would be half of what is committed. InvalidTxnState: the transaction of its epoch has
    ended in this log, so the epoch was given twice, as after a restore whose state is older than
    its logs; taken for a repetition, what was never written would be acknowledged.
    """
    if not batch.is_transactional:
        return
    if entry is None:
        if batch.first_sequence != 0:
            raise OutOfOrderSequence(
                f"The transaction of producer {batch.producer_id} begins in this log with sequence "
                f"{batch.first_sequence}: what was appended before is not here",
                expected_sequence=0,
            )
    elif entry.producer_epoch == batch.producer_epoch and entry.current_txn_first_offset is None:
        raise InvalidTxnState(
            f"The transaction of producer {batch.producer_id} with epoch {batch.producer_epoch} "
            "has ended in this log: begin again",
            producer_id=batch.producer_id,
        )
