"""ProducerOperations: ids and epochs for idempotent producers, and what a log knows of them.

The part of the operation layer that is about producers; ``Operations`` holds it. Errors are those
of ``errors.py``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from kafkalog.manager.access_rules import Action, Resource
from kafkalog.manager.authorized import operation_class, requires

if TYPE_CHECKING:
    from kafkalog.log.producer_state import ProducerStateEntry
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.producer_ids import ProducerIdentity


@operation_class()
class ProducerOperations:
    """See the module. Blocking but for ``describe``."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager

    @requires(Action.WRITE, Resource.CLUSTER)
    def allocate(self) -> ProducerIdentity:
        """A producer id that was never given before, at epoch 0."""
        return self._manager.producer_ids.allocate()

    @requires(Action.WRITE, Resource.CLUSTER)
    def bump(self, producer_id: int) -> ProducerIdentity:
        """The producer's next epoch, its older ones refused from now on; see ``ProducerIds``."""
        return self._manager.producer_ids.bump(producer_id)

    @requires(Action.READ, Resource.TOPIC, "topic")
    def describe(self, topic: str, partition: int) -> list[ProducerStateEntry]:
        """What the log of a partition remembers of its producers, by id; no disk."""
        self._manager.registered(topic)
        log = self._manager.log_of(topic, partition)
        return sorted(log.producers.entries.values(), key=attrgetter("producer_id"))
