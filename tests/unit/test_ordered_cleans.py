"""Goal: an order of several cleans ends once, when its last clean has, with every end in its place.
Method: cleans that the test ends itself, in another order than they were asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.compaction.cleaning import OrderedCleans
from kafkalog.cleaner.stats import CleaningRun
from kafkalog.errors import CleaningConflict
from kafkalog.format.topic_names import TopicPartition
from tests.sim.sim_clock import SimClock
from tests.sim.sim_threads import SimThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.broker.compaction.cleaning import CleanEnd

KEYS = [TopicPartition("t", number) for number in range(3)]


def run_of(key: TopicPartition) -> CleaningRun:
    return CleaningRun(key, 0, False, 0, 0)


class Order:
    """An order under way: what was submitted, and its ends once they were told."""

    def __init__(
        self, keys: Sequence[TopicPartition], refused: TopicPartition | None = None
    ) -> None:
        self.submitted: dict[TopicPartition, Callable[[CleaningRun], None]] = {}
        self.told: list[list[CleanEnd]] = []
        self._refused = refused
        mutex = SimThreads(SimClock(), 1, lambda *_: None).mutex()
        self.cleans = OrderedCleans(keys, mutex, lambda ends: self.told.append(list(ends)))
        self.cleans.begin(self._submit)

    def _submit(self, key: TopicPartition, done: Callable[[CleaningRun], None]) -> None:
        if key == self._refused:
            raise CleaningConflict("taken", topic=key.topic, partition=key.partition)
        self.submitted[key] = done

    def end(self, key: TopicPartition) -> None:
        self.submitted[key](run_of(key))


def test_ends_in_the_order_of_the_keys() -> None:
    """Told once, by the last one; until then the progress counts."""
    order = Order(KEYS)
    for done, key in enumerate((KEYS[2], KEYS[0])):
        order.end(key)
        assert order.cleans.progress == {"partitions": 3, "partitions_done": done + 1}
        assert order.told == []
    order.end(KEYS[1])
    assert order.told == [[run_of(key) for key in KEYS]]


def test_a_clean_that_is_refused_is_an_end() -> None:
    """The others go on."""
    order = Order(KEYS, refused=KEYS[1])
    order.end(KEYS[0])
    order.end(KEYS[2])
    ((first, second, third),) = order.told
    assert (first, third) == (run_of(KEYS[0]), run_of(KEYS[2]))
    assert isinstance(second, CleaningConflict)


def test_all_refused_and_none_at_all() -> None:
    """Nothing waits for what never comes."""
    assert [len(ends) for ends in Order(KEYS[:1], refused=KEYS[0]).told] == [1]
    assert Order([]).told == [[]]
