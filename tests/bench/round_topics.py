"""Topics of one round: what a benchmark appends to, and removes before the next round."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.daemon_side import BenchDaemon
    from tests.bench.kafka_side import BenchBroker

# Topics are deleted soon, so that every round writes into memory that the one before gave back: on
# a virtual machine the first touch of a page costs more than the append.
SOON = {"log_initial_task_delay_ms": "100", "log_segment_delete_delay_ms": "100"}
SOON_KAFKA = "log.initial.task.delay.ms=500\n"


class Topics:
    """A new topic for each round of one side; the one before is deleted first."""

    def __init__(self, side: BenchDaemon | BenchBroker, name: str, partitions: int = 1) -> None:
        self._side = side
        self._name = name
        self._partitions = partitions
        self._count = 0

    def renew(self) -> str:
        """The topic of the next round."""
        if self._count:
            self._side.delete_topic(f"{self._name}{self._count}")
        self._count += 1
        name = f"{self._name}{self._count}"
        self._side.create_topic(name, self._partitions)
        return name
