"""SinkExpiry: which sinks and producers of sinks are forgotten, when, and their tombstones.

A commit is the one thing that tells a batch that is run again from a new one, and costs sixty bytes
and a place in a table: it stays, as long as fewer than ``SILENT_KEPT_MAX`` queries were heard of
since, or ``CROWDED`` within the week: then a day's silence is enough, before all new ones would be
refused. What costs is its producers, one an attempt at a part of the data: each goes when nobody
began it for ``transactional.id.expiration.ms``; who comes after that gets another one. A query
that said with its last batch that it is over (``df.write``) keeps none from then on, and its commit
for some hours, in which a task of it may still run or a driver ask again.

Ages are those of the wall clock, without what it jumped ahead in this life of the daemon: a clock
that is set wrong is put right long before the jump is forgotten. After a restart with a wrong
clock it is the producers and the ended queries that go, no commit of a stream.
Source: Kafka's TransactionStateManager, which forgets the whole transactional id.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import structlog

from kafkalog.format.disk.sink_state import NO_BATCH, QueryKey
from kafkalog.manager.clock_guard import ClockGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.format.disk.sink_state import ProducerKey
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.sink import Key, Sink
    from kafkalog.manager.sink_table import SinkTable

SILENT_KEPT_MAX = 5_000
CROWDED = 9_000  # nine tenths of SINKS_MAX: an hour's new queries have room until the next look
CROWDED_KEPT_MS = 24 * 3_600_000
ENDED_KEPT_MAX = 2_000
ENDED_KEPT_MS = 3 * 3_600_000

_TOMBSTONES = 500  # a batch of them stays far below max.message.bytes

_log = structlog.get_logger(__name__)


def expired_producers(sink: Sink, expired_ms: int) -> list[ProducerKey]:
    """Of those with nothing open, who were begun last at that time or before; of an ended sink all.

    Pure.
    """
    producers, opened = sink.producers.copy(), sink.open
    return [
        key
        for key, value in producers.items()
        if value.producer_id not in opened and (sink.is_over or value.timestamp_ms <= expired_ms)
    ]


def expired_queries(sinks: Sequence[Sink], now_ms: int, expiration_ms: int) -> list[Sink]:
    """Those that ended some hours ago, and of the silent ones who never committed or are too many.

    Pure. The silent ones that have been so for the longest go first; those of a day when there are
    so many queries that new ones would be refused soon.
    """
    ended = [
        sink
        for sink in sinks
        if sink.is_over and sink.changed_ms <= now_ms - min(ENDED_KEPT_MS, expiration_ms)
    ]
    others = [sink for sink in set(sinks).difference(ended) if not (sink.open or sink.is_decided)]
    others.sort(key=lambda sink: sink.changed_ms)

    def longest_silent(silent_ms: int, kept_max: int) -> list[Sink]:
        surplus = max(len(sinks) - len(ended) - kept_max, 0)
        return [sink for sink in others[:surplus] if sink.changed_ms <= now_ms - silent_ms]

    without_commit = {
        sink
        for sink in others
        if sink.committed_batch_id == NO_BATCH and sink.changed_ms <= now_ms - expiration_ms
    }
    return [
        *ended,
        *without_commit.union(
            longest_silent(expiration_ms, SILENT_KEPT_MAX),
            longest_silent(min(CROWDED_KEPT_MS, expiration_ms), CROWDED),
        ),
    ]


def surplus_ended(sinks: Iterable[Sink]) -> list[Sink]:
    """Ended sinks beyond the newest ``ENDED_KEPT_MAX``. Pure."""
    ended = sorted((sink for sink in sinks if sink.is_over), key=lambda sink: sink.changed_ms)
    return ended[: max(len(ended) - ENDED_KEPT_MAX, 0)]


class SinkExpiry:
    """See the module. Blocking; for tasks, and for whoever has the turn of a sink."""

    def __init__(
        self, manager: LogManager, table: SinkTable, settle: Callable[[Sink], None]
    ) -> None:
        """``settle``: what earlier calls left of a sink, under its turn; raises its fault."""
        # constant after construction
        self._table = table
        self._settle = settle
        self._clock = manager.seams.clock
        self._expiration_ms = manager.config.transactional_id_expiration_ms
        self._clock_guard = ClockGuard(
            self._clock, manager.seams.threads.mutex(), self._expiration_ms
        )

    def start(self) -> None:
        """From now on a jump of the clock is seen."""
        self._clock_guard.look()

    def works_of_age(self) -> list[Callable[[], None]]:
        """What is to be forgotten by now, each piece for itself."""
        sinks = self._table.all()
        now_ms = self._clock.wall_ms() - self._clock_guard.look()
        expired_ms = now_ms - self._expiration_ms
        queries = expired_queries(sinks, now_ms, self._expiration_ms)
        others = set(sinks).difference(queries)
        return [
            *(self._forgetting(sink) for sink in queries),
            *(
                self._forgetting_producers(sink, expired_ms)
                for sink in sinks
                if sink in others and expired_producers(sink, expired_ms)
            ),
        ]

    def works_of_surplus(self) -> list[Callable[[], None]]:
        """Ended sinks that have to make room, each for itself."""
        return [self._forgetting(sink) for sink in surplus_ended(self._table.all())]

    def forget_producers(self, sink: Sink, expired_ms: int) -> None:
        """Tombstones; under the turn, settled."""
        self._bury(sink, expired_producers(sink, expired_ms))

    def _forgetting(self, sink: Sink) -> Callable[[], None]:
        planned = sink.query

        def forget() -> None:
            with self._table.free_turn(sink.name) as current:
                if current is None:
                    return  # it is heard of right now
                self._settle(current)
                if current.query is not planned or current.open:
                    return  # it was heard of again
                # The producers first: without them it is still known.
                self._bury(current, [*current.producers, QueryKey(current.name)])
                _log.info("sink_forgotten", query=current.name)

        return forget

    def _forgetting_producers(self, sink: Sink, expired_ms: int) -> Callable[[], None]:
        def forget() -> None:
            with self._table.free_turn(sink.name) as current:
                if current is not None:
                    self._settle(current)
                    self.forget_producers(current, expired_ms)

        return forget

    def _bury(self, sink: Sink, keys: Iterable[Key]) -> None:
        rest = iter(keys)
        while some := list(islice(rest, _TOMBSTONES)):
            self._table.write(sink, [(key, None) for key in some])
