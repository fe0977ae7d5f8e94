"""ConsumerGroups: who reads what in which group, and up to where each member has come.

Owns the members of the groups (``consumer.py`` is one of them), their assignment and their expiry.
Everything is in memory and lives with the process; what outlives it are the commits
(``group_offsets.py``). There is one node, so a rebalance is a function call: it runs when a member
subscribes, leaves or expires, and when a topic appears, grows or goes, and the next poll already
has its result. Owned by one thread, the event loop, but for ``used_ms``. Never blocks.
Source: Kafka 4.1 ``RangeAssignor``, ``ConsumerCoordinator``; http-api.md 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import ConsumerExists, InvalidRequest, Overloaded, UnknownConsumer
from kafkalog.format.disk.group_offsets import text_fault
from kafkalog.format.topic_names import INTERNAL_TOPICS
from kafkalog.manager.access_rules import Action, Resource
from kafkalog.manager.authorized import internal, lists, operation_class, requires
from kafkalog.manager.consumer import Consumer
from kafkalog.manager.group_assignment import assign_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkalog.manager.consumer import ConsumerConfig
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.topic_registry import RegistryState

_log = structlog.get_logger(__name__)
_NS_PER_MS = 1_000_000
_SWEEP_NS = 1_000_000_000  # how often idle members are looked for, at most
_MEMBERS_MAX = 10_000  # of all groups: some 20 MB
_LEFT_MAX = 10_000  # groups without members whose last use is remembered


def _sees_all(_topic: str) -> bool:
    return True


class Group:
    """The members of one group; none of them: it is forgotten."""

    __slots__ = ("members", "name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, Consumer] = {}
        self.seen: RegistryState | None = None  # topics as of the last rebalance


@operation_class()
class ConsumerGroups:
    """See the module."""

    def __init__(self, manager: LogManager) -> None:
        # constant after construction
        self._manager = manager
        self._clock = manager.seams.clock
        self._timeout_ns = manager.config.consumer_instance_timeout_ms * _NS_PER_MS
        # owned by the event loop; other threads look up single entries
        self._groups: dict[str, Group] = {}
        self._left_ms: dict[str, int] = {}  # wall clock, of groups without members
        self._member_count = 0
        self._next_sweep_ns = 0
        manager.group_offsets.watch_use(self.used_ms)

    # ---- any thread

    @internal
    def used_ms(self, group: str) -> int:
        """Wall clock when the group last had members: now, a time, or 0 for not in this run."""
        if group in self._groups:
            return self._clock.wall_ms()
        return self._left_ms.get(group, 0)

    # ---- the event loop

    @requires(Action.READ, Resource.GROUP, "group")
    def create(self, group: str, name: str | None, config: ConsumerConfig) -> Consumer:
        """A new member, which reads nothing yet. ``name`` None: one is made up.

        ConsumerExists; Overloaded; InvalidRequest for a name that no commit could hold.
        """
        self._sweep()
        for text, of in ((group, "group"), (name or "x", "consumer")):
            fault = text_fault(text) if text else "is empty"
            if fault is not None:
                raise InvalidRequest(f"The name of the {of} {fault}")
        if name is None:
            name = f"{config.name_prefix}{self._manager.seams.random.uuid_bytes().hex()}"
        if self._member_count >= _MEMBERS_MAX:
            raise Overloaded(f"There are {_MEMBERS_MAX} consumer instances. Delete some.")
        found = self._groups.setdefault(group, Group(group))
        if name in found.members:
            raise ConsumerExists(
                f"Consumer instance {name} exists already in this group.", group=group, name=name
            )
        consumer = Consumer(self._manager, group, name, config)
        consumer.last_used_ns = self._clock.monotonic_ns()
        found.members[name] = consumer
        self._member_count += 1
        return consumer

    @requires(Action.READ, Resource.GROUP, "group")
    def find(self, group: str, name: str) -> Consumer:
        """A member, whose idle time begins anew; its assignment is up to date. UnknownConsumer."""
        self._sweep()
        found = self._groups.get(group)
        consumer = found.members.get(name) if found is not None else None
        if found is None or consumer is None:
            raise UnknownConsumer("Consumer instance not found.", group=group, name=name)
        consumer.last_used_ns = self._clock.monotonic_ns()
        self._follow_topics(found)
        return consumer

    @requires(Action.READ, Resource.GROUP, "consumer")
    def delete(self, consumer: Consumer) -> None:
        """The member leaves; its partitions go to the others."""
        found = self._groups.get(consumer.group)
        if found is not None and found.members.get(consumer.name) is consumer:
            self._remove(found, consumer)

    @requires(Action.READ, Resource.GROUP, "consumer", sees="sees")
    def subscribe(
        self,
        consumer: Consumer,
        topics: Collection[str] | None,
        pattern: str | None,
        *,
        sees: Callable[[str], bool] = _sees_all,
    ) -> None:
        """Read these topics, or those that match; the group is dealt out anew.

        A pattern matches no topic that the subscriber may not describe, as in Kafka, where its
        metadata lacks them; rules that change count from the next subscription on.

        IllegalConsumerState when partitions were assigned by hand, InvalidRequest for a pattern
        that is none.
        """
        consumer.subscribe(topics, pattern, sees)
        self._rebalance(self._groups[consumer.group])

    @requires(Action.READ, Resource.GROUP, "consumer")
    def unsubscribe(self, consumer: Consumer) -> None:
        """Read nothing, whichever way it was asked for."""
        consumer.unsubscribe()
        self._rebalance(self._groups[consumer.group])

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def members(self, group: str) -> list[Consumer]:
        """By name, those that are not idle for too long."""
        self._sweep()
        found = self._groups.get(group)
        if found is None:
            return []
        self._follow_topics(found)
        return sorted(found.members.values(), key=lambda each: each.name)

    @lists(Action.DESCRIBE, Resource.GROUP)
    def names(self) -> list[str]:
        """Groups that have members."""
        self._sweep()
        return sorted(self._groups)

    # ---- parts

    def _sweep(self) -> None:
        """Take away members that nobody used for ``consumer.instance.timeout.ms``."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_sweep_ns:
            return
        self._next_sweep_ns = now_ns + min(_SWEEP_NS, self._timeout_ns)
        for group in list(self._groups.values()):
            for consumer in list(group.members.values()):
                if now_ns - consumer.last_used_ns >= self._timeout_ns:
                    _log.info("consumer_expired", group=group.name, consumer=consumer.name)
                    self._remove(group, consumer)

    def _remove(self, group: Group, consumer: Consumer) -> None:
        consumer.unsubscribe()
        consumer.is_gone = True
        del group.members[consumer.name]
        self._member_count -= 1
        if group.members:
            self._rebalance(group)
        else:
            self._left_ms.pop(group.name, None)
            self._left_ms[group.name] = self._clock.wall_ms()
            if len(self._left_ms) > _LEFT_MAX:
                del self._left_ms[next(iter(self._left_ms))]
            del self._groups[group.name]

    def _follow_topics(self, group: Group) -> None:
        """Deal out anew when a topic appeared, grew or went since."""
        if group.seen is not self._manager.registry.state:
            self._rebalance(group)

    def _rebalance(self, group: Group) -> None:
        """Every subscribed member gets its partitions; what it keeps, it reads on where it was."""
        group.seen = self._manager.registry.state
        counts = {
            topic.name: topic.partition_count for topic in self._manager.registry.topics.values()
        }
        offered = [name for name in counts if name not in INTERNAL_TOPICS]
        wanted = {
            name: member.wanted_topics(offered)
            for name, member in group.members.items()
            if member.is_subscribed
        }
        for name, partitions in assign_ranges(wanted, counts).items():
            group.members[name].assign(partitions)
