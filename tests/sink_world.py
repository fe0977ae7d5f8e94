"""Sinks on the simulated manager: transactional batches, and what committed readers see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.transactions.producer_ids import ProducerIdentity
from kafkalog.broker.values import Acks
from kafkalog.format.disk.sink_state import Winner
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.records.control_record import read_batch_control_type
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import is_control, read_header
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.values import Isolation
from tests.partition_world import batch
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.transactions.coordinator import Sinks
    from kafkalog.format.records.record_batch import BatchHeader
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction
    from tests.sim.sim_filesystem import SimFilesystem

CONFIG = BrokerConfig(log_dirs=DIRS)
QUERY = "q"
T = [TopicPartition("t", number) for number in range(4)]


def started(
    disk: SimFilesystem | None = None, *, seed: int = 0, config: BrokerConfig = CONFIG
) -> SimManager:
    """A manager whose sinks are loaded."""
    sim = SimManager(disk, seed=seed, config=config).start()
    sim.clock.advance_ms(1)
    return sim


def with_topic(partitions: int = 4, *, config: BrokerConfig = CONFIG) -> SimManager:
    """A manager with the topic ``t``: its partitions are on both disks."""
    sim = started(config=config).with_topic("t", partitions, {})
    return sim


def begin(sim: SimManager, batch_id: int, partition_id: int = 0, attempt: int = 0) -> Producer:
    """A producer, of which the batch is not committed."""
    identity = sim.manager.sinks.begin(QUERY, batch_id, partition_id, attempt)
    assert identity is not None
    return Producer(sim, identity)


def commit(sim: SimManager, batch_id: int, *winners: Winner) -> None:
    sim.manager.sinks.commit(QUERY, batch_id, winners)


def used_up(sim: SimManager) -> Producer:
    """A producer at its last epoch, with something open."""
    one = begin(sim, 1)
    table = sinks_of(sim)._table
    with table.lock(QUERY) as sink:
        (key,) = sink.producers
        table.write(sink, [(key, replace(sink.producers[key], producer_epoch=INT16_MAX))])
    one.identity = ProducerIdentity(one.identity.producer_id, INT16_MAX)
    assert one.send("old").error is None
    return one


def transactional(identity: ProducerIdentity, sequence: int, values: Sequence[str]) -> bytes:
    return batch(values, producer=(*identity, sequence), is_transactional=True)


class Producer:
    """One attempt of a task: what it appended where."""

    def __init__(self, sim: SimManager, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._sim = sim
        self._sequences: dict[int, int] = {}

    def send(self, *values: str, partition: int = 0, acks: Acks = Acks.ALL) -> Command:
        """Append one batch and wait for its answer."""
        sequence = self._sequences.get(partition, 0)
        data = transactional(self.identity, sequence, values)
        command = self._sim.produce("t", data, acks, partition=partition)
        if command.error is None:
            self._sequences[partition] = sequence + len(values)
        return command

    def bind(self, sim: SimManager) -> None:
        """Go on in the daemon's next life."""
        self._sim = sim

    def winner(self) -> Winner:
        partitions = tuple(T[number] for number in sorted(self._sequences))
        return Winner(*self.identity, partitions)


def committed(sim: SimManager, partition: int = 0, topic: str = "t") -> list[str]:
    """What a reader of committed records sees, by the transaction index and the markers."""
    log = sim.manager.logs.log_of(topic, partition)
    found: list[str] = []
    for header, data, aborted in stored(log, log.last_stable_offset, Isolation.LAST_STABLE):
        is_aborted = any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        if not is_control(header.attributes) and not is_aborted:
            found += [(record.value or b"").decode() for record in iterate_records(data)]
    return found


def markers(sim: SimManager, partition: int = 0) -> list[str]:
    """Types of the markers in a partition, in order."""
    log = sim.manager.logs.log_of("t", partition)
    found: list[str] = []
    for header, data, _ in stored(log, log.log_end_offset, Isolation.LOG_END):
        if is_control(header.attributes):
            kind = read_batch_control_type(data)
            assert kind is not None
            found.append(kind.name)
    return found


def stored(
    log: UnifiedLog, end: int, isolation: Isolation
) -> Iterator[tuple[BatchHeader, memoryview, Sequence[AbortedTransaction]]]:
    """Batches below the end, with the aborted transactions that the read tells of."""
    offset = log.log_start_offset
    while offset < end:
        info = log.read(offset, 1 << 20, isolation)
        data = memoryview(info.data)
        while data:
            header = read_header(data)
            yield header, data[: header.size_bytes], info.aborted
            data = data[header.size_bytes :]
        offset = info.next_offset


def is_settled(sim: SimManager) -> bool:
    """Whether no transaction is open in any served log."""
    return not any(log.producers.open_transactions() for log in sim.manager.logs.table.logs())


def sinks_of(sim: SimManager) -> Sinks:
    return sim.manager.sinks
