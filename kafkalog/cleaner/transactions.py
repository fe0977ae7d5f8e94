"""CleanedTransactionMetadata: which data was aborted and which markers have lost their data.

Fed with the batches of a round in log order: data of a transaction that is going to be aborted may
go at once; a marker may go once no data of its transaction is left, and until then an abort marker
keeps its entry in the transaction index. State goes on from segment to segment and from group to
group. One thread; no disk.

Batches without the transactional or control bit need not be shown: they change nothing. Source:
Kafka's CleanedTransactionMetadata (4.1).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.records.control_record import ControlRecordType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.log.values import AbortedTransaction


@dataclass(slots=True)
class _Aborting:
    """An aborted transaction whose marker was not read yet."""

    transaction: AbortedTransaction
    has_data: bool = False


class CleanedTransactionMetadata:
    """See the module."""

    __slots__ = ("_aborting", "_coming", "_committing", "retained")

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset
        self._aborting: dict[int, _Aborting] = {}  # by producer id
        self._committing: set[int] = set()  # producers with data of a transaction that is none
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions whose data was met, in the order of their markers: the caller takes
        them for the transaction index of what it writes."""

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions of the range that is read next; known ones may come again."""
        for each in transactions:
            heapq.heappush(self._coming, (each.first_offset, each))

    def take_retained(self) -> list[AbortedTransaction]:
        """``retained`` so far; empty afterwards."""
        retained, self.retained = self.retained, []
        return retained

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """A transactional data batch; whether its transaction was aborted."""
        self._begin_up_to(last_offset)
        aborting = self._aborting.get(producer_id)
        if aborting is None:
            self._committing.add(producer_id)
            return False
        aborting.has_data = True
        return True

    def on_control_batch(
        self, producer_id: int, last_offset: int, control_type: ControlRecordType | None
    ) -> bool:
        """A control batch, None: one whose record was removed; whether nothing needs it any more.

        A marker whose transaction has data is needed.
        """
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        if control_type is ControlRecordType.ABORT:
            aborting = self._aborting.pop(producer_id, None)
            if aborting is None or not aborting.has_data:
                return True
            self.retained.append(aborting.transaction)
            return False
        if control_type is ControlRecordType.COMMIT:
            if producer_id not in self._committing:
                return True
            self._committing.discard(producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        """Transactions whose first offset was reached; one that a producer is in goes on."""
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heapq.heappop(self._coming)
            self._aborting.setdefault(transaction.producer_id, _Aborting(transaction))
