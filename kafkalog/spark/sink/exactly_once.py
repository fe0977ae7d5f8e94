"""Exactly once: the records of a batch of tasks become visible together, or never.

Each attempt of a task begins with a request to the daemon. The answer is a new producer for this
attempt, or that the batch is committed. The task's appends are transactional: readers of committed
records do not see them before the driver's commit. The commit names the producers of the attempts
that Spark accepted, the winners; everything else that was written for the batch is aborted. A
task whose batch is committed reads its input to the end and writes nothing.

Why no crash of a task, driver or daemon loses or duplicates records:

- The first commit of a batch counts; later ones change nothing. So of all runs of a batch (retries,
  speculation, a restarted driver) one set of attempts is visible.
- The commit names all records of the winners, down to the last sequence in each partition: an
  attempt ends when its records are acknowledged, and Spark commits when every task has ended. A
  winner that was fenced or aborted in between, or whose log has lost records, is refused, and the
  commit with it.
- Spark runs a batch again until it has stored that its commit returned. If the driver dies between
  the two, the next run is answered "committed" and writes nothing. A batch with a lower id does
  not come again, except from an old checkpoint with other records: it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.client import ClientError, InvalidTxnState
from kafkalog.client.sinks import SinkWinner, abort_sink, begin_sink, commit_sink
from kafkalog.format.records.record_batch import add_to_sequence
from kafkalog.spark.sink.delivery import SinkFailed, sink_failed
from kafkalog.spark.sink.write import blocks, connected, deliver, requested

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from kafkalog.spark.sink.delivery import TopicPartition
    from kafkalog.spark.sink.options import SinkOptions


class SinkBatch(NamedTuple):
    """The unit of a commit: a micro-batch of a stream, or a whole ``df.write``.

    run_id   the start of the query that runs it, as two starts may run the same batch; None for
             ``df.write``
    """

    query: str
    batch_id: int
    run_id: str | None = None

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query}"


@dataclass(frozen=True, slots=True)
class Attempted:
    """The result of a task for the driver. Pickled.

    winner   the task's producer; None: it had no records, or the batch was committed before
    """

    batch: SinkBatch
    winner: SinkWinner | None = None


def write_exactly_once(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: Sequence[str],
    batch: SinkBatch,
    partition_id: int,
    attempt: int,
) -> Attempted:
    """Append the records of a task; all are acknowledged on return, visible after the commit.

    partition_id   the part of the batch that the task writes
    attempt        the number of its earlier attempts

    Nothing is appended if the batch is committed. Raises the errors of ``write_at_least_once``;
    records that were appended before an error never become visible.
    """
    parts = blocks(batches, options.block_bytes)
    first = next(parts, None)
    if first is None:
        return Attempted(batch)
    with connected(options.access) as connection:
        begin = begin_sink(batch.query, batch.batch_id, partition_id, attempt, run_id=batch.run_id)
        producer = requested(
            connection.client, begin, f"Part {partition_id} of {batch} could not begin"
        )
        if producer is None:
            for _ in parts:
                pass  # Spark fails a task that does not read all of its input
            return Attempted(batch)
        sequences: dict[TopicPartition, int] = {}
        partitions = deliver(
            chain([first], parts),
            connection.client,
            options,
            columns,
            producer,
            sequences,
            is_transactional=True,
        )
    last = {at: add_to_sequence(following, -1) for at, following in sequences.items()}
    winner = SinkWinner(producer.producer_id, producer.producer_epoch, partitions, last)
    return Attempted(batch, winner)


def commit_batch(
    options: SinkOptions, attempted: Sequence[Attempted], *, is_last: bool = False
) -> None:
    """Make the records of these tasks visible, and no others of their batch; durable on return.

    is_last   no batch of the query follows

    SinkFailed when it failed or its outcome is unknown: the batch is run again, and its tasks
    learn from the daemon whether it is committed.
    """
    batch = _batch_of(attempted)
    if batch is None:
        return
    winners = [each.winner for each in attempted if each.winner is not None]
    with connected(options.access) as connection:
        commit = commit_sink(
            batch.query, batch.batch_id, winners, is_last=is_last, run_id=batch.run_id
        )
        requested(connection.client, commit, f"The commit of {batch} failed")


def abort_batch(options: SinkOptions, attempted: Sequence[Attempted]) -> None:
    """Abort a batch that is run again, because some of its tasks failed. Raises SinkFailed.

    If no task has ended, the batch is unknown here. What such tasks wrote, or write after the end
    of the query, is aborted by the first begin of the next run, or by the daemon's timeout.
    """
    batch = _batch_of(attempted)
    if batch is not None:
        _try_abort(options, batch)


def abandon_batch(options: SinkOptions, batch: SinkBatch) -> None:
    """Abort a batch that is never run again. Raises SinkFailed.

    It is then committed without a winner, so that tasks that still run cannot begin it again.
    SinkFailed also when the batch is committed and only the answer was lost: its records are
    visible, and writing them again would duplicate them.
    """
    if not _try_abort(options, batch):
        raise SinkFailed(
            f"All records are written: {batch} is committed, and only the answer to the commit was "
            "lost. Do not write it again."
        )
    commit_batch(options, [Attempted(batch)], is_last=True)


def _try_abort(options: SinkOptions, batch: SinkBatch) -> bool:
    """True: it is aborted; False: it is committed. Raises SinkFailed."""
    with connected(options.access) as connection:
        try:
            connection.client.run(abort_sink(batch.query, batch.batch_id, run_id=batch.run_id))
        except InvalidTxnState:
            return False
        except ClientError as failure:
            raise sink_failed(failure, f"The abort of {batch} failed") from failure
    return True


def _batch_of(attempted: Sequence[Attempted]) -> SinkBatch | None:
    """The batch of these tasks; None if no task has ended."""
    batches = {each.batch for each in attempted}
    assert len(batches) <= 1, "the tasks of one job are of one batch"
    return next(iter(batches), None)
