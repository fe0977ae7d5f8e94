"""What the batches of a source do to transactions, noted once and replayed where it is needed.

A log that is cleaned in pieces needs the state of both passes where each piece begins. That state
hangs on the headers of transactional and control batches alone: whoever reads a piece notes them,
and one replay of all pieces in order gives the state at each of their beginnings, the very one
that a single reader would have.

Not all data is noted. Between two control batches of a producer, in one source, an aborted
transaction of its may begin once and does not end: if any of its data lies before that, the first
batch does, and if any lies behind it, the last one does. Nothing else of data is asked for, so the
first and the last batch stand for all, and events go with transactions, not with batches. The last
event of a source is always there: up to it aborted transactions begin before more of them are told.
One thread; no disk.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
from kafkalog.format.control_record import ControlRecordType

if TYPE_CHECKING:
    from kafkalog.kernels.compile import Int64Table

_DATA, _WITHOUT_RECORD = -3, -2  # beside the values of ControlRecordType
_ONLY_FIRST = -1
_FIELDS = 4  # of a noted event: its number, then those of SourceEvents
_REPLAYED_ROWS = 1 << 16  # that are Python objects at a time


class SourceEvents(NamedTuple):
    """Control batches, and first and last data batches between them, of one source in order.

    table        int64[n, 3]: producer id, last offset, ControlRecordType or one of the above
    mapped_from  row of the first one that the first pass reads
    """

    table: Int64Table
    mapped_from: int


class RecordedTransactions(CleanedTransactionMetadata):
    """Notes what it is shown; 32 bytes an event. ``retained`` stays empty."""

    __slots__ = ("_count", "_events", "_last_data")

    def __init__(self) -> None:
        super().__init__()
        self._events = array("q")
        self._count = 0
        # By producer with data since its last control batch: where in _events its last batch is.
        self._last_data: dict[int, int] = {}

    def take_events(self) -> Int64Table:
        """Those since the last call; see SourceEvents."""
        noted = np.frombuffer(self._events, np.int64).reshape(-1, _FIELDS)
        table = noted[np.argsort(noted[:, 0]), 1:]  # a copy
        self._events, self._last_data = array("q"), {}
        return table

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """See CleanedTransactionMetadata."""
        place = self._last_data.get(producer_id)
        if place is None:
            self._last_data[producer_id] = _ONLY_FIRST
            self._note(producer_id, last_offset, _DATA)
        elif place == _ONLY_FIRST:
            self._last_data[producer_id] = len(self._events)
            self._note(producer_id, last_offset, _DATA)
        else:
            self._events[place], self._events[place + 2] = self._count, last_offset
            self._count += 1
        return super().on_batch(producer_id, last_offset)

    def on_control_batch(
        self, producer_id: int, last_offset: int, control_type: ControlRecordType | None
    ) -> bool:
        """See CleanedTransactionMetadata."""
        self._last_data.pop(producer_id, None)
        kind = _WITHOUT_RECORD if control_type is None else int(control_type)
        self._note(producer_id, last_offset, kind)
        is_needless = super().on_control_batch(producer_id, last_offset, control_type)
        self.take_retained()  # nothing is written: they would be those of the whole group
        return is_needless

    def _note(self, producer_id: int, last_offset: int, kind: int) -> None:
        self._events.extend((self._count, producer_id, last_offset, kind))
        self._count += 1


def replay(events: Int64Table, transactions: CleanedTransactionMetadata) -> None:
    """Show the events to ``transactions`` as the batches themselves would be."""
    for start in range(0, len(events), _REPLAYED_ROWS):
        for producer_id, last_offset, kind in events[start : start + _REPLAYED_ROWS].tolist():
            if kind == _DATA:
                transactions.on_batch(producer_id, last_offset)
            else:
                control_type = None if kind == _WITHOUT_RECORD else ControlRecordType(kind)
                transactions.on_control_batch(producer_id, last_offset, control_type)
