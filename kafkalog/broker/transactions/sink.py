"""Sink: what one query that writes exactly once has begun and committed, in memory.

The sum of its records in ``__sink_state``, in their order: ``apply`` is the only way in, for the
replay at a start and for what was just written. Changed under the lock of the sink; other threads
read whole values. The functions below check what a commit names against its sink and the logs.

A run is one life of a query's driver. The run that began last has the sink: its first begin aborts
what a former run left open, and calls of a former run are refused. A call is one begin, however
often it is sent: a late repetition gets the answer that was given and fences no producer; after a
newer call of the same producer it is refused. Runs and calls are in memory only. A restart forgets
them: no call is under way then, and the first run that begins is taken for the one that had it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from kafkalog.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
)
from kafkalog.format.disk.sink_state import (
    NO_BATCH,
    ProducerKey,
    ProducerValue,
    QueryKey,
    QueryValue,
    SinkState,
    Winner,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.env.threads import Mutex
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.state.producer_state import ProducerStateEntry

    Key = QueryKey | ProducerKey
    Value = QueryValue | ProducerValue | None
    Entry = tuple[Key, Value]


_FORMER_MAX = 16  # runs whose tasks may still be alive
_CALLS_MAX = 8  # of one producer that may still be on their way


class Caller(NamedTuple):
    """Who begins; None: it is not given."""

    run_id: str | None = None
    call_id: str | None = None


ANONYMOUS = Caller()


@dataclass(slots=True, eq=False)
class SinkRuns:
    """See the module."""

    _run_id: str | None = None
    _former: deque[str] = field(default_factory=lambda: deque(maxlen=_FORMER_MAX))
    # Begins of what is open, the newest last.
    _calls: dict[ProducerKey, tuple[str | None, ...]] = field(default_factory=dict)

    def check(self, query: str, run_id: str | None) -> None:
        """ProducerFenced for a former run."""
        if run_id in self._former:
            raise ProducerFenced(f"Another run of query {query} has begun since")

    def is_other(self, run_id: str | None) -> bool:
        """Whether the run takes the sink over from one that is known."""
        return None not in (run_id, self._run_id) and run_id != self._run_id

    def is_repeated(self, query: str, key: ProducerKey, caller: Caller) -> bool:
        """Whether this very call began the newest of this producer, as far as that is open.

        ProducerFenced when it came late, after another one that was answered.
        """
        calls = self._calls.get(key, ())
        if caller.call_id is None or caller.call_id not in calls:
            return False
        if caller.call_id != calls[-1]:
            raise ProducerFenced(f"A newer begin of this attempt of query {query} was answered")
        return True

    def forget_calls(self) -> None:
        """Nothing is open any more, so no begin can be repeated."""
        self._calls.clear()

    def note(self, key: ProducerKey, caller: Caller) -> None:
        """A begin that is durable."""
        if self._run_id is not None and self.is_other(caller.run_id):
            self._former.append(self._run_id)
        self._run_id = caller.run_id or self._run_id
        self._calls[key] = (*self._calls.get(key, ()), caller.call_id)[-_CALLS_MAX:]


SinkPhase = Literal["open", "committing", "committed", "aborted"]
_WORDS: dict[SinkState, SinkPhase] = {
    SinkState.PREPARE_COMMIT: "committing",
    SinkState.PREPARE_LAST_COMMIT: "committing",
    SinkState.COMPLETE_COMMIT: "committed",
    SinkState.DEAD: "committed",
    SinkState.PREPARE_ABORT: "aborted",
}
_DECIDED = frozenset({SinkState.PREPARE_COMMIT, SinkState.PREPARE_LAST_COMMIT})


class SinkProducer(NamedTuple):
    """A producer of a sink as operators see it."""

    key: ProducerKey
    value: ProducerValue
    is_open: bool


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """A sink as operators see it; None: no such batch."""

    name: str
    state: SinkPhase
    committed_batch_id: int | None
    open_batch_id: int | None
    changed_ms: int
    producers: tuple[SinkProducer, ...]  # by partition id and attempt
    pending: tuple[TopicPartition, ...]  # whose commit is decided, the marker perhaps not written


@dataclass(slots=True, eq=False)
class Sink:
    """See the module."""

    # constant after construction
    name: str
    lock: Mutex  # held over every change, and over its waits
    # monotonic, of the last begin or append; any thread
    used_ns: int
    # published; single operations under the lock
    query: QueryValue | None = None  # the newest record
    producers: dict[ProducerKey, ProducerValue] = field(default_factory=dict)
    # by producer id: of the batch that is open
    open: dict[int, ProducerValue] = field(default_factory=dict)
    open_batch_id: int | None = None
    # Written, but it is not known yet whether it is durable; under the lock.
    unsettled: tuple[Entry, ...] = ()
    runs: SinkRuns = field(default_factory=SinkRuns)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it."""
        return self.query is None and not self.producers and not self.unsettled

    @property
    def committed_batch_id(self) -> int:
        """The last one, NO_BATCH before the first."""
        return NO_BATCH if self.query is None else self.query.committed_batch_id

    @property
    def winners(self) -> tuple[Winner, ...]:
        """Whose commit is decided and not complete."""
        return () if self.query is None else self.query.winners

    @property
    def is_decided(self) -> bool:
        """Whether markers of a commit may be missing."""
        return self.query is not None and self.query.state in _DECIDED

    @property
    def is_last(self) -> bool:
        """Whether the decision is that of the query's last batch."""
        return self.query is not None and self.query.state is SinkState.PREPARE_LAST_COMMIT

    @property
    def is_over(self) -> bool:
        """Whether its last batch is committed and no other was begun since."""
        return self.query is not None and self.query.state is SinkState.DEAD and not self.open

    @property
    def changed_ms(self) -> int:
        """Wall clock of the newest record."""
        stamps = [each.timestamp_ms for each in self.producers.copy().values()]
        return max(stamps + ([] if self.query is None else [self.query.timestamp_ms]), default=0)

    def wants(self, producer_id: int, producer_epoch: int, at: TopicPartition) -> bool:
        """Whether an open transaction is of the open batch, or shall be committed. Any thread.

        In this order: what is decided is published before what was open is removed.
        """
        opened = self.open.get(producer_id)
        if opened is not None and opened.producer_epoch == producer_epoch:
            return True
        return any(
            (each.producer_id, each.producer_epoch) == (producer_id, producer_epoch)
            and at in each.partitions
            for each in self.winners
        )

    def apply(self, entries: Iterable[Entry]) -> None:
        """Records in the order of the log; a value of None takes its key away."""
        for key, value in entries:
            if isinstance(key, ProducerKey):
                assert value is None or isinstance(value, ProducerValue)
                self._apply_producer(key, value)
            else:
                assert value is None or isinstance(value, QueryValue)
                self.query = value  # first: see ``wants``
                self.open = {}
                self.open_batch_id = None
                self.runs.forget_calls()

    def _apply_producer(self, key: ProducerKey, value: ProducerValue | None) -> None:
        former = self.producers.pop(key, None)
        if former is not None and (value is None or value.producer_id != former.producer_id):
            self.open.pop(former.producer_id, None)
        if value is not None:
            self.producers[key] = value
            self.open[value.producer_id] = value
            self.open_batch_id = value.batch_id

    def describe(self) -> SinkDescription:
        """Of this moment."""
        open_batch_id, committed = self.open_batch_id, self.committed_batch_id
        opened, query = self.open, self.query
        state: SinkPhase = (
            "open" if open_batch_id is not None or query is None else _WORDS[query.state]
        )
        producers = [
            SinkProducer(key, value, opened.get(value.producer_id) == value)
            for key, value in sorted(self.producers.copy().items())
        ]
        return SinkDescription(
            name=self.name,
            state=state,
            committed_batch_id=None if committed == NO_BATCH else committed,
            open_batch_id=open_batch_id,
            changed_ms=self.changed_ms,
            producers=tuple(producers),
            pending=tuple(at for winner in self.winners for at in winner.partitions),
        )


PARTITIONS_MAX = 100_000  # that one commit names


class LastSequence(NamedTuple):
    """Of a winner's last record in a partition, as its append was answered."""

    producer_id: int
    at: TopicPartition
    sequence: int


def check_not_older(sink: Sink, batch_id: int) -> None:
    """ProducerFenced below the batch that was committed last, or above that, below the open one.

    No query repeats what precedes its last commit: such a call is a zombie's, or of a checkpoint
    that was put back or copied, whose batch of this number has other records.
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
