"""Sinks on the simulated manager: transactional batches, and what committed readers see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import Acks
from kafkalog.format.disk.sink_state import Winner
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.control_record import read_batch_control_type
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import is_control, read_header
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.values import Isolation
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.transactions.coordinator import Sinks
    from kafkalog.broker.transactions.producer_ids import ProducerIdentity
    from tests.sim.sim_filesystem import SimFilesystem

CONFIG = BrokerConfig(log_dirs=DIRS)
NOW_MS = 1_700_000_000_000
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
    sim = started(config=config)
    sim.operations.topics.create("t", partitions, {})
    return sim


def begin(sim: SimManager, batch_id: int, partition_id: int = 0, attempt: int = 0) -> Producer:
    """A producer, of which the batch is not committed."""
    identity = sim.manager.sinks.begin(QUERY, batch_id, partition_id, attempt)
    assert identity is not None
    return Producer(sim, identity)


def transactional(identity: ProducerIdentity, sequence: int, values: Sequence[str]) -> bytes:
    """A batch of an open transaction."""
    return build_batch(
        RecordColumns.of([None] * len(values), list(values), NOW_MS),
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


class Producer:
    """One attempt of a task: what it appended where."""

    def __init__(self, sim: SimManager, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._sim = sim
        self._sequences: dict[int, int] = {}

    def send(self, *values: str, partition: int = 0, acks: Acks = Acks.ALL) -> Command:
        """Append one batch and wait for its answer."""
        sequence = self._sequences.get(partition, 0)
        batch = transactional(self.identity, sequence, values)
        command = self._sim.produce("t", batch, acks, partition=partition)
        if command.error is None:
            self._sequences[partition] = sequence + len(values)
        return command

    def bind(self, sim: SimManager) -> None:
        """Go on in the daemon's next life."""
        self._sim = sim

    def winner(self) -> Winner:
        """As a commit names it."""
        partitions = tuple(T[number] for number in sorted(self._sequences))
        return Winner(*self.identity, partitions)


def committed(sim: SimManager, partition: int = 0, topic: str = "t") -> list[str]:
    """What a reader of committed records sees, by the transaction index and the markers."""
    log = sim.manager.logs.log_of(topic, partition)
    found: list[str] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        info = log.read(offset, 1 << 20, Isolation.LAST_STABLE)
        data, position = memoryview(info.data), 0
        while position < len(data):
            header = read_header(data[position:])
            batch = data[position : position + header.size_bytes]
            position += header.size_bytes
            is_aborted = any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in info.aborted
            )
            if not is_control(header.attributes) and not is_aborted:
                found += [(record.value or b"").decode() for record in iterate_records(batch)]
        offset = info.next_offset
    return found


def markers(sim: SimManager, partition: int = 0) -> list[str]:
    """Types of the markers in a partition, in order."""
    log = sim.manager.logs.log_of("t", partition)
    found: list[str] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, 1 << 20, Isolation.LOG_END)
        data, position = memoryview(info.data), 0
        while position < len(data):
            header = read_header(data[position:])
            if is_control(header.attributes):
                kind = read_batch_control_type(data[position : position + header.size_bytes])
                assert kind is not None
                found.append(kind.name)
            position += header.size_bytes
        offset = info.next_offset
    return found


def is_settled(sim: SimManager) -> bool:
    """Whether no transaction is open in any served log."""
    return not any(log.producers.open_transactions() for log in sim.manager.logs.table.logs())


def sinks_of(sim: SimManager) -> Sinks:
    """The coordinator."""
    return sim.manager.sinks
