"""SecondPass: what stays of the sources of one group, chunk by chunk, into what they become.

Owns the order in which a chunk is decided on: transactions, batches as a whole, records. Knows of
no log and no swap. One thread, which blocks; the caller discards the output after any error.
Source: Kafka's Cleaner.cleanInto (4.1), log-lifecycle 12.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cleaner.batch_decisions import batch_orders, needless_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.cleaner.batch_decisions import LastBatches
    from kafkalog.cleaner.cleaned_group import CleanedGroup
    from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
    from kafkalog.cleaner.cleaner_stats import CleanerStats
    from kafkalog.cleaner.record_batches import RecordBatches
    from kafkalog.cleaner.record_filter import RecordFilter, TombstoneRule


@dataclass(frozen=True, slots=True)
class SecondPass:
    """See the module.

    record_filter  with the map of the round, or one that knows the keys of this group alone
    transactions   as they stand where the group begins; its sources are added by the caller
    end_offset     the round's first uncleanable offset
    output         None: a dry run
    """

    record_filter: RecordFilter
    transactions: CleanedTransactionMetadata
    last_batches: LastBatches
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    output: CleanedGroup | None
    stats: CleanerStats

    def filter_source(
        self,
        chunks: Iterable[RecordBatches],
        tombstone_rule: TombstoneRule,
        on_written: Callable[[int], None],
    ) -> None:
        """Append what stays of one source; ``on_written`` is told the bytes, and may block.

        Raises CorruptBatch, SegmentOffsetOverflow, and what the chunks, the output and
        ``on_written`` raise.
        """
        for batches in chunks:
            needless = needless_batches(batches, self.transactions)
            orders = batch_orders(
                batches,
                needless,
                self.last_batches,
                end_offset=self.end_offset,
                now_ms=self.now_ms,
                tombstone_rule=tombstone_rule,
            )
            kept = self.record_filter.filter(
                batches,
                *orders,
                now_ms=self.now_ms,
                delete_retention_ms=self.delete_retention_ms,
                tombstone_rule=tombstone_rule,
            )
            self.stats.add(kept.statistics)
            retained = self.transactions.take_retained()
            if self.output is not None:
                self.output.append(kept)
                self.output.add_aborted(retained)
                on_written(len(kept.data))
