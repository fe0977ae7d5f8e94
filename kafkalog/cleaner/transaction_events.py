"""What the batches of a source do to transactions, noted once and replayed where it is needed.

A log that is cleaned in pieces needs the state of both passes where each piece begins. That state
hangs on the headers of transactional and control batches alone: whoever reads a piece notes them,
and one replay of all pieces in order gives the state at each of their beginnings, the very one
that a single reader would have. One thread; no disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
from kafkalog.format.control_record import ControlRecordType

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Int64Table

_DATA, _WITHOUT_RECORD = -3, -2  # beside the values of ControlRecordType


class SourceEvents(NamedTuple):
    """The transactional and control batches of one source in order.

    table        int64[n, 3]: producer id, last offset, ControlRecordType or one of the above
    mapped_from  row of the first one that the first pass reads
    """

    table: Int64Table
    mapped_from: int


class RecordedTransactions(CleanedTransactionMetadata):
    """Notes what it is shown."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[int, int, int]] = []

    def take_events(self) -> Int64Table:
        """Those since the last call; see SourceEvents."""
        events, self._events = self._events, []
        return np.array(events, np.int64).reshape(-1, 3)

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """See CleanedTransactionMetadata."""
        self._events.append((producer_id, last_offset, _DATA))
        return super().on_batch(producer_id, last_offset)

    def on_control_batch(
        self, producer_id: int, last_offset: int, control_type: ControlRecordType | None
    ) -> bool:
        """See CleanedTransactionMetadata."""
        kind = _WITHOUT_RECORD if control_type is None else int(control_type)
        self._events.append((producer_id, last_offset, kind))
        return super().on_control_batch(producer_id, last_offset, control_type)


def replay(events: Int64Table, transactions: CleanedTransactionMetadata) -> None:
    """Show the events to ``transactions`` as the batches themselves would be."""
    for producer_id, last_offset, kind in events.tolist():
        if kind == _DATA:
            transactions.on_batch(producer_id, last_offset)
        else:
            control_type = None if kind == _WITHOUT_RECORD else ControlRecordType(kind)
            transactions.on_control_batch(producer_id, last_offset, control_type)
