"""GroupOffsetsReplay: what the records of one partition of `__consumer_offsets` add up to.

Owns the order of transactions: commits that a producer sent in one count when its marker says so,
and not at all when it was aborted or never ended. Keys of other kinds are Kafka's and are passed
over; a record that breaks the format is logged and passed over. No disk, one thread.
Source: Kafka 4.1 OffsetMetadataManager.replay, replayEndTransactionMarker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.format.disk.group_offsets import (
    CommittedOffset,
    GroupPartition,
    decode_key,
    decode_value,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.records.control_record import ControlRecordType, read_control_type
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import is_control, is_transactional, read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.format.records.record import Record
    from kafkalog.format.records.record_batch import BatchHeader

    Changes = dict[GroupPartition, CommittedOffset | None]

_log = structlog.get_logger(__name__)


class GroupOffsetsReplay:
    """See the module."""

    def __init__(
        self, apply: Callable[[Mapping[GroupPartition, CommittedOffset | None]], None]
    ) -> None:
        """``apply`` gets the changes of each batch, or of each transaction, in order."""
        self._apply = apply
        self._open: dict[int, Changes] = {}  # by producer id

    def read(self, batches: bytes | memoryview, max_batch_bytes: int) -> None:
        """Whole batches as they lie in the log."""
        data, position = memoryview(batches), 0
        while position < len(data):
            header = read_header(data[position:])
            batch = data[position : position + header.size_bytes]
            position += header.size_bytes
            try:
                self._read_batch(header, batch, max_batch_bytes)
            except FormatError as error:
                _log.error(
                    "group_offsets_unreadable", offset=header.base_offset, reason=error.reason
                )

    def _read_batch(self, header: BatchHeader, batch: memoryview, max_batch_bytes: int) -> None:
        records = iterate_records(batch, max_batch_bytes)
        producer_id = header.producer_id
        if is_control(header.attributes):
            for marker in records:
                changes = self._open.pop(producer_id, {})
                if read_control_type(marker.key) is ControlRecordType.COMMIT:
                    self._apply(changes)
            return
        is_open = is_transactional(header.attributes)
        changes = self._open.setdefault(producer_id, {}) if is_open else {}
        for record in records:
            _note(record, changes)
        if not is_open:
            self._apply(changes)


def _note(record: Record, changes: Changes) -> None:
    """The change that a record makes, if it is a commit that we can read."""
    try:
        key = decode_key(record.key) if record.key is not None else None
        if key is not None:
            changes[key] = None if record.value is None else decode_value(record.value)
    except FormatError as error:
        _log.error("group_offset_unreadable", offset=record.offset, reason=error.reason)
