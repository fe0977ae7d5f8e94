"""Exactly once: a batch of tasks whose records are shown together, or never (design.md 4.24).

A task begins with the daemon, which gives it a producer of its own for this attempt, or says that
the batch is committed. What it appends is transactional, so nobody who reads committed records sees
it before the driver's one call: that names the producers of the attempts that Spark took, and
whatever else was written for this batch is aborted. A task that is told "committed" reads its input
to the end and writes nothing.

Why nothing is lost or doubled, whoever dies when:

- The first commit of a batch is the only one; any other call for it changes nothing. So of all runs
  of a batch (retries, speculation, a driver that starts again) one set of attempts is shown.
- It names all that the set wrote, down to the last sequence in each partition: an attempt ends
  when its records are acknowledged, and Spark calls for the commit when every task has ended. A
  winner that was fenced or aborted in between is refused, or one whose log has lost records, and
  with it the commit.
- Spark runs a batch again until it has noted that its commit returned. It may have returned, and
  the driver died before the note: that run is told "committed" and writes nothing. A batch below
  that one never comes again, unless a checkpoint is from before, with other records: refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.client import ClientError, InvalidTxnState, ProducerIdentity
from kafkalog.client.sinks import SinkWinner, abort_sink, begin_sink, commit_sink
from kafkalog.format.records.record_batch import add_to_sequence
from kafkalog.spark.sink.failures import SinkFailed, sink_failed
from kafkalog.spark.sink.sink_task import asked, connected, deliver
from kafkalog.spark.sink.write import blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from kafkalog.spark.sink.delivery import TopicPartition
    from kafkalog.spark.sink.options import SinkOptions


class SinkBatch(NamedTuple):
    """What is committed as one: a micro-batch of a stream, or a whole ``df.write``.

    run_id   which start of the stream runs it: another may run the same batch; None: of a
             ``df.write``
    """

    query: str
    batch_id: int
    run_id: str | None = None

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query}"


class TaskAttempt(NamedTuple):
    """Which part of a batch of tasks, and how often it was begun before."""

    partition_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempted:
    """What the driver learns of a task of a batch that has ended. Pickled.

    winner   None: it had no records, or the batch was committed before
    """

    batch: SinkBatch
    winner: SinkWinner | None = None


def write_exactly_once(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    columns: Sequence[str],
    batch: SinkBatch,
    task: TaskAttempt,
) -> Attempted:
    """Append the records of a task, for ``commit_batch`` to show; all are acknowledged on return.

    Nothing is appended when the batch is committed already. Raises as ``write_at_least_once``; what
    was appended then is never shown.
    """
    parts = blocks(batches, options.block_bytes)
    first = next(parts, None)
    if first is None:
        return Attempted(batch)
    with connected(options.access) as connection:
        begin = begin_sink(
            batch.query, batch.batch_id, task.partition_id, task.attempt, run_id=batch.run_id
        )
        producer = asked(
            connection.client, begin, f"Part {task.partition_id} of {batch} could not begin"
        )
        if producer is None:
            for _ in parts:
                pass  # for Spark a task that leaves some of its input has failed
            return Attempted(batch)
        identity = ProducerIdentity(producer.producer_id, producer.producer_epoch)
        sequences: dict[TopicPartition, int] = {}
        written = deliver(
            chain([first], parts),
            connection.client,
            options,
            columns,
            identity,
            sequences,
            is_transactional=True,
        )
    last = {at: add_to_sequence(following, -1) for at, following in sequences.items()}
    winner = SinkWinner(producer.producer_id, producer.producer_epoch, written.partitions, last)
    return Attempted(batch, winner)


def commit_batch(
    options: SinkOptions, attempted: Sequence[Attempted], *, is_last: bool = False
) -> None:
    """Show what these tasks wrote, and nothing else of their batch; durable on return.

    is_last   no batch of the query follows

    SinkFailed when that was not done, or nobody knows: then the batch is run again, and the daemon
    tells its tasks.
    """
    batch = _batch_of(attempted)
    if batch is None:
        return
    winners = [each.winner for each in attempted if each.winner is not None]
    with connected(options.access) as connection:
        commit = commit_sink(
            batch.query, batch.batch_id, winners, is_last=is_last, run_id=batch.run_id
        )
        asked(connection.client, commit, f"The commit of {batch} failed")


def abort_batch(options: SinkOptions, attempted: Sequence[Attempted]) -> None:
    """Drop what the tasks of a batch of a stream wrote, some of which failed; it is run again.

    When none has ended nobody knows the batch, and a task that outlives its query may begin once
    more: the first begin of the query's next run aborts that, or in time the daemon. SinkFailed.
    """
    batch = _batch_of(attempted)
    if batch is not None:
        _try_abort(options, batch)


def abandon_batch(options: SinkOptions, batch: SinkBatch) -> None:
    """Drop what was written for a batch that is never run again. Raises as ``commit_batch``.

    It is committed without a winner, so that tasks which still run find it over, and do not begin
    once more what nobody would end. SinkFailed, too, when only the answer to its commit was lost:
    it stays, and who runs it again would double it.
    """
    if not _try_abort(options, batch):
        raise SinkFailed(
            f"All was written: {batch} is committed, and only the answer to that was lost. Do not "
            "write it again."
        )
    commit_batch(options, [Attempted(batch)], is_last=True)


def _try_abort(options: SinkOptions, batch: SinkBatch) -> bool:
    """Whether it is aborted; it is committed otherwise. SinkFailed."""
    with connected(options.access) as connection:
        try:
            connection.client.run(abort_sink(batch.query, batch.batch_id, run_id=batch.run_id))
        except InvalidTxnState:
            return False
        except ClientError as failure:
            raise sink_failed(failure, f"The abort of {batch} failed") from failure
    return True


def _batch_of(attempted: Sequence[Attempted]) -> SinkBatch | None:
    """The batch of these tasks; None when none of them has ended."""
    batches = {each.batch for each in attempted}
    assert len(batches) <= 1, "the tasks of one job are of one batch"
    return next(iter(batches), None)
