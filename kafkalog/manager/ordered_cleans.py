"""OrderedCleans: several cleans of one order, and how each of them ended, told once all have.

Owns their outcomes until then. Cleaner threads end them, in any order; ``progress`` may be read by
any thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.cleaner.stats import CleaningRun
    from kafkalog.env.threads import Mutex
    from kafkalog.format.topic_names import TopicPartition

    CleanEnd = CleaningRun | KafkalogError  # the error of one that was never begun
    Submit = Callable[[TopicPartition, Callable[[CleaningRun], None]], None]


class OrderedCleans:
    """See the module."""

    def __init__(
        self,
        keys: Sequence[TopicPartition],
        mutex: Mutex,
        on_done: Callable[[Sequence[CleanEnd]], None],
    ) -> None:
        """``on_done`` gets the ends in the order of the keys, on the thread of the last one."""
        # constant after construction
        self._keys = keys
        self._mutex = mutex
        self._on_done = on_done
        # under the mutex
        self._ends: list[CleanEnd | None] = [None] * len(keys)
        # published
        self.progress = {"partitions": len(keys), "partitions_done": 0}

    def begin(self, submit: Submit) -> None:
        """Submit each; a KafkalogError of one is its end. Does not block."""
        if not self._keys:
            self._on_done(())
        for index, key in enumerate(self._keys):
            try:
                submit(key, partial(self._ended, index))
            except KafkalogError as error:
                self._ended(index, error)

    def _ended(self, index: int, end: CleanEnd) -> None:
        with self._mutex:
            self._ends[index] = end
            self.progress["partitions_done"] += 1
            ends = [each for each in self._ends if each is not None]
        if len(ends) == len(self._ends):
            self._on_done(ends)
