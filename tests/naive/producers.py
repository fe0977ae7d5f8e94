"""Plain twin of producer state: walk every batch of a log from its first to its last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.format.records.control_record import ControlRecordType, read_end_transaction_marker
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import read_header

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONTROL, _TRANSACTIONAL = 0x20, 0x10


@dataclass
class NaiveProducer:
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    coordinator_epoch: int = -1
    open_since: int | None = None


@dataclass
class NaiveProducers:
    """All producers of a log and its aborted transactions."""

    producers: dict[int, NaiveProducer] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # id, first, last offset

    @classmethod
    def of(cls, batches: Iterable[bytes]) -> NaiveProducers:
        state = cls()
        for batch in batches:
            state.add(batch)
        return state

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return min(
            (each.open_since for each in self.producers.values() if each.open_since is not None),
            default=None,
        )

    def add(self, batch: bytes) -> None:
        header = read_header(batch)
        if header.producer_id < 0:
            return
        producer = self.producers.setdefault(
            header.producer_id, NaiveProducer(header.producer_epoch)
        )
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.last_sequence = producer.last_offset = -1
        if not header.attributes & _CONTROL:
            producer.last_sequence = header.base_sequence + header.last_offset_delta
            producer.last_offset = header.last_offset
            if header.attributes & _TRANSACTIONAL and producer.open_since is None:
                producer.open_since = header.base_offset
            return
        record = next(iter(iterate_records(batch)))
        marker = read_end_transaction_marker(record.key, record.value)
        if producer.open_since is not None and marker.control_type is ControlRecordType.ABORT:
            self.aborted.append((header.producer_id, producer.open_since, header.last_offset))
        producer.open_since = None
        producer.coordinator_epoch = marker.coordinator_epoch
