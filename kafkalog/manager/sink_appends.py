"""What a log must say of a producer for a sink's batch to be the next one, or a repetition. Pure.

Each transaction has an epoch of its own (``Sinks.begin``), and its sequences begin at 0 in every
partition. Differs from Kafka, where a producer keeps its epoch and its sequences over transactions,
so that a log takes what repeats a batch of the one before for a repetition; what a producer of
transactions version 2 begins with is held against 0 there, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidTxnState, OutOfOrderSequence

if TYPE_CHECKING:
    from kafkalog.log.state.producer_state import ProducerBatch, ProducerStateEntry


def check_transaction(batch: ProducerBatch, entry: ProducerStateEntry | None) -> None:
    """Raise why a client's transactional batch neither begins a transaction nor goes on with one.

    OutOfOrderSequence: the log has lost what came before, as a topic that was made anew; the batch
    alone would be half of what is committed. InvalidTxnState: the transaction of its epoch has
    ended in this log, so the epoch was given twice, as behind a restore whose state is older than
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
