"""Sink: what one query that writes exactly once has begun and committed, in memory.

What its records in ``__sink_state`` add up to, in their order: ``apply`` is the one way in, for the
replay of a start and for what was just written. Changed by whoever holds ``turn``; others read the
whole values that are published here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.disk.sink_state import (
    NO_BATCH,
    ProducerKey,
    ProducerValue,
    QueryKey,
    QueryValue,
    SinkState,
    Winner,
)
from kafkalog.manager.sink_runs import SinkRuns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.env.threads import Mutex
    from kafkalog.format.topic_names import TopicPartition

    Key = QueryKey | ProducerKey
    Value = QueryValue | ProducerValue | None
    Entry = tuple[Key, Value]

_WORDS = {
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
    state: str  # open, committing, committed, aborted
    committed_batch_id: int | None
    open_batch_id: int | None
    changed_ms: int
    producers: tuple[SinkProducer, ...]  # by partition id and attempt
    pending: tuple[TopicPartition, ...]  # whose commit is decided, the marker perhaps not written


class Sink:
    """See the module."""

    __slots__ = (
        "name",
        "open",
        "open_batch_id",
        "producers",
        "query",
        "runs",
        "turn",
        "unsettled",
        "used_ns",
    )

    def __init__(self, name: str, turn: Mutex, now_ns: int) -> None:
        # constant after construction
        self.name = name
        self.turn = turn  # held over every change, and over its waits
        # published; single operations under the turn
        self.query: QueryValue | None = None  # the newest record
        self.producers: dict[ProducerKey, ProducerValue] = {}
        self.open: dict[int, ProducerValue] = {}  # by producer id: of the batch that is open
        self.open_batch_id: int | None = None
        # Written, but nobody knows yet whether it is durable; under the turn.
        self.unsettled: tuple[Entry, ...] = ()
        self.runs = SinkRuns()
        # monotonic, of the last begin or append; any thread
        self.used_ns = now_ns

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
        """Whether its last batch is committed and nobody has begun another all the same."""
        return self.query is not None and self.query.state is SinkState.DEAD and not self.open

    @property
    def changed_ms(self) -> int:
        """Wall clock of the newest record."""
        stamps = [each.timestamp_ms for each in self.producers.copy().values()]
        return max(stamps + ([] if self.query is None else [self.query.timestamp_ms]), default=0)

    def wants(self, producer_id: int, producer_epoch: int, at: TopicPartition) -> bool:
        """Whether an open transaction is of the open batch, or shall be committed. Any thread.

        In this order: what is decided is published before what was open goes.
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
        state = "open" if open_batch_id is not None or query is None else _WORDS[query.state]
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
