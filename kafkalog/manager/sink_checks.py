"""What a commit must name, held against what its sink and the logs know. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.format.disk.sink_state import Winner
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.state.producer_state import ProducerStateEntry
    from kafkalog.manager.sink import Sink

PARTITIONS_MAX = 100_000  # that one commit names


class LastSequence(NamedTuple):
    """Of a winner's last record in a partition, as it was told that it is appended."""

    producer_id: int
    at: TopicPartition
    sequence: int


def check_not_older(sink: Sink, batch_id: int) -> None:
    """ProducerFenced below the batch that was committed last, or above that, below the open one.

    Nobody who goes on with a query comes back behind its last commit: such a call is a zombie's, or
    of a checkpoint that was put back or copied, whose batch of this number has other records.
    """
    committed_batch_id, open_batch_id = sink.committed_batch_id, sink.open_batch_id
    if batch_id < committed_batch_id:
        raise ProducerFenced(
            f"Batch {committed_batch_id} of query {sink.name} is committed: batch {batch_id} is "
            "older",
            committed_batch_id=committed_batch_id,
        )
    if open_batch_id is not None and committed_batch_id < batch_id < open_batch_id:
        raise ProducerFenced(
            f"Batch {open_batch_id} of query {sink.name} is open: batch {batch_id} is older",
            open_batch_id=open_batch_id,
        )


def check_winners(sink: Sink, batch_id: int, winners: Sequence[Winner]) -> None:
    """That each is an open producer of this batch, and that the request has bounds."""
    if sum(max(len(winner.partitions), 1) for winner in winners) > PARTITIONS_MAX:
        raise InvalidRequest(f"A commit names at most {PARTITIONS_MAX} partitions of winners")
    if len({winner.producer_id for winner in winners}) < len(winners):
        raise InvalidRequest("A commit names each producer once")
    newest = {each.producer_id: each.producer_epoch for each in sink.producers.values()}
    for winner in winners:
        producer_id, epoch = winner.producer_id, newest.get(winner.producer_id)
        if epoch is None:
            raise InvalidProducerIdMapping(
                f"Producer {producer_id} is none of query {sink.name}", producer_id=producer_id
            )
        if winner.producer_epoch != epoch:
            raise ProducerFenced(
                f"Producer {producer_id} has epoch {epoch}, not {winner.producer_epoch}",
                producer_id=producer_id,
                current_epoch=epoch,
            )
        opened = sink.open.get(producer_id)
        if opened is None or opened.batch_id != batch_id:
            raise InvalidTxnState(
                f"Producer {producer_id} has nothing open in batch {batch_id} of query "
                f"{sink.name}: it was aborted",
                producer_id=producer_id,
            )


def check_last_sequence(last: LastSequence, entry: ProducerStateEntry | None) -> None:
    """InvalidTxnState unless the log ends this producer's records with that sequence.

    Sequences have no gaps, so everything below it is there, too. A log may have lost what was
    acknowledged: damage that a load cut off, or a restore in the middle of a task.
    """
    found = None if entry is None else entry.last_sequence
    if found != last.sequence:
        raise InvalidTxnState(
            f"Partition {last.at} ends with sequence {found} of producer {last.producer_id}, not "
            f"with {last.sequence}: nothing was committed",
            producer_id=last.producer_id,
            topic=last.at.topic,
            partition=last.at.partition,
        )
