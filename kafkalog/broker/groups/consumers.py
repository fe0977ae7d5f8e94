"""Consumers: the members of groups, their subscriptions, assignments and positions.

Owns the members, their assignment and their expiry. Everything is in memory and lives with the
process; the commits outlive it (``groups/offsets``). There is one node, so a rebalance is a
function call: it runs when a member subscribes, leaves or expires, and when a topic is created,
grown or deleted, and the next poll already has its result. ``assign_ranges`` is Kafka's range
assignment.

A position is the next offset to deliver: the group's commit, else what ``auto.offset.reset`` says,
from the assignment on. It moves when an answer was written, and moves back when that answer turns
out to be lost: records may come twice, never not at all.

Owned by the event loop, but for ``used_ms``. Never blocks. Source: Kafka 4.1 ``RangeAssignor``
(members without a rack), ``ConsumerCoordinator``.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, lists, operation_class, requires
from kafkalog.errors import (
    ConsumerExists,
    IllegalConsumerState,
    InvalidRequest,
    KafkalogError,
    NoCommittedOffset,
    OffsetOutOfRange,
    Overloaded,
    UnknownConsumer,
    UnknownPartition,
)
from kafkalog.format.disk.group_offsets import name_fault
from kafkalog.format.topic_names import INTERNAL_TOPICS, TopicPartition
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.groups.offsets import GroupOffsets
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.registry import RegistryState
    from kafkalog.env.clock import Clock
    from kafkalog.errors import Detail
    from kafkalog.log.unified_log import UnifiedLog


class Reset(enum.Enum):
    """Where to begin without a commit, and where the position is outside the log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"  # an error


class Dialect(enum.Enum):
    """Whose client it is; see ``docs/reference/http-consumers.md``."""

    CONFLUENT = "confluent"  # commits name the last record read, one is added
    STRIMZI = "strimzi"  # commits name the next record
    KARAPACE = "karapace"  # as Confluent's, but for statuses and defaults


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """What a consumer was made with; times in ms."""

    dialect: Dialect = Dialect.CONFLUENT
    embedded_format: str = "binary"
    reset: Reset = Reset.LATEST
    is_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    min_bytes: int = 1
    request_timeout_ms: int = 1_000
    isolation: Isolation = Isolation.HIGH_WATERMARK
    name_prefix: str = "rest-consumer-"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one answer held: (position before, position after) of each partition.

    was_lost    whether its client cannot have got it all; asked at the next request
    via         the connection: another request on it says that the client got it all
    """

    moves: Mapping[TopicPartition, tuple[int, int]]
    was_lost: Callable[[], bool]
    via: object = None


class Consumer:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        offsets: GroupOffsets,
        clock: Clock,
        group: str,
        name: str,
        config: ConsumerConfig,
    ) -> None:
        # constant after construction
        self._logs = logs
        self._offsets = offsets
        self._clock = clock
        self.group = group
        self.name = name
        self.config = config
        # owned by the event loop
        self.last_used_ns = 0
        self.is_gone = False
        self.poll_number = 0  # of the newest poll: an older one that waits gives up
        self._last_commit_ns = clock.monotonic_ns()
        self._topics: tuple[str, ...] | None = None
        self._wants: Callable[[str], bool] | None = None  # of a pattern
        self._matched: dict[str, bool] = {}
        self._is_manual = False
        self._positions: dict[TopicPartition, int | None] = {}  # None: not looked up yet
        self._unsettled: Delivery | None = None
        self._turn = 0
        self.on_change: Callable[[], None] = lambda: None  # wakes a poll that waits

    # ---- what it reads

    @property
    def is_subscribed(self) -> bool:
        """By topics or by a pattern: it takes part in the group's assignment."""
        return self._topics is not None or self._wants is not None

    @property
    def partitions(self) -> list[TopicPartition]:
        """Assigned, by topic and number."""
        return sorted(self._positions)

    @property
    def topics(self) -> list[str]:
        """Subscribed; of a pattern those that match now. The Bridge also lists assigned ones."""
        if self._is_manual and self.config.dialect is Dialect.STRIMZI:
            return sorted({at.topic for at in self._positions})
        if self._topics is not None:
            return sorted(self._topics)
        return sorted(name for name, does in self._matched.items() if does)

    def subscribe(
        self, topics: Collection[str] | None, pattern: str | None, sees: Callable[[str], bool]
    ) -> None:
        """See ConsumerGroups.subscribe, which assigns afterwards."""
        if self._is_manual:
            raise IllegalConsumerState("Illegal state: partitions were assigned by hand.")
        if pattern is None:
            assert topics is not None
            self._topics, self._wants = tuple(dict.fromkeys(topics)), None
            self._matched = {}
            return
        try:
            matches = TopicPattern(pattern).matches
        except MalformedPattern as error:
            raise InvalidRequest(f"topic_pattern is not understood: {error}") from error
        self._topics, self._matched = None, {}
        self._wants = lambda topic: sees(topic) and matches(topic)

    def wanted_topics(self, offered: Collection[str]) -> list[str]:
        """Of what it subscribed to; a pattern is asked once for each name."""
        if self._topics is not None:
            return list(self._topics)
        assert self._wants is not None
        wants, known = self._wants, self._matched
        self._matched = {name: known[name] if name in known else wants(name) for name in offered}
        return [name for name in offered if self._matched[name]]

    def unsubscribe(self) -> None:
        """Nothing is read any more."""
        self._topics = self._wants = None
        self._matched = {}
        self._is_manual = False
        self.assign(())

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """By the group: what it had keeps its position, the rest begins at the commit or reset."""
        kept = self._positions
        self._positions = {at: kept.get(at) for at in partitions}
        for at, position in self._positions.items():
            if position is None:
                # Groups may still be loaded, directories be offline: the poll says so.
                with suppress(KafkalogError):
                    self._positions[at] = self._first_position(at)
        self.on_change()

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Instead of a subscription. IllegalConsumerState, UnknownTopic, UnknownPartition."""
        if self.is_subscribed:
            raise IllegalConsumerState("Illegal state: the consumer subscribed to topics.")
        for at in partitions:
            if not self._may_come(at):
                self._offsets.check_exists(at)
        self._is_manual = bool(partitions)
        self.assign(partitions)

    def _may_come(self, at: TopicPartition) -> bool:
        """Whether it is of a topic that may be created later, which only the Bridge's clients may
        assign: nothing is read of it until then.
        """
        is_strimzi = self.config.dialect is Dialect.STRIMZI
        return is_strimzi and at.topic not in self._logs.registry.state.topics

    # ---- its positions

    def _first_position(self, at: TopicPartition) -> int:
        committed = self._offsets.committed_of(self.group, at)
        if committed is not None:
            return committed.offset
        return self._reset_position(self._log(at))

    def _reset_position(self, log: UnifiedLog) -> int:
        """NoCommittedOffset for ``none``."""
        if self.config.reset is Reset.EARLIEST:
            return log.log_start_offset
        if self.config.reset is Reset.LATEST:
            return self.end_of(log)
        at = log.topic_partition
        raise NoCommittedOffset(
            f"Group {self.group} has no commit of {at}, and auto.offset.reset is none. Commit an "
            "offset, or move the consumer's position.",
            group=self.group,
            topic=at.topic,
            partition=at.partition,
        )

    def end_of(self, log: UnifiedLog) -> int:
        """Behind the last record that this consumer may see."""
        if self.config.isolation is Isolation.LAST_STABLE:
            return log.last_stable_offset
        return log.high_watermark

    def _log(self, at: TopicPartition) -> UnifiedLog:
        return self._logs.log_of(at.topic, at.partition)

    def position(self, at: TopicPartition) -> int:
        """The next offset to deliver, inside the log. IllegalConsumerState when not assigned.

        A position outside is reset. Errors as of a fetch; NoCommittedOffset.
        """
        self.check_assigned((at,))
        log = self._log(at)
        position = self._positions[at]
        if position is None:
            position = self._first_position(at)
        try:
            log.check_bounds(position)
        except OffsetOutOfRange:
            if self.config.reset is Reset.NONE:
                raise
            position = self._reset_position(log)
        self._positions[at] = position
        return position

    def positions(self) -> dict[TopicPartition, int]:
        """Of assigned partitions that exist, as far as they are known: what may be committed."""
        topics = self._logs.registry.state.topics
        return {
            at: known
            for at, known in self._positions.items()
            if known is not None and at.topic in topics
        }

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """IllegalConsumerState, for the Bridge's clients UnknownPartition, unless all are."""
        missing = next((at for at in partitions if at not in self._positions), None)
        if missing is None:
            return
        place: dict[str, Detail] = {"topic": missing.topic, "partition": missing.partition}
        if self.config.dialect is Dialect.STRIMZI:
            raise UnknownPartition(f"No current assignment for partition {missing}", **place)
        raise IllegalConsumerState(
            f"Illegal state: no current assignment for partition {missing}", **place
        )

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read on from there, all or none. IllegalConsumerState; an answer on its way is void."""
        self.check_assigned(positions)
        self._positions.update(positions)
        self._unsettled = None
        self.on_change()

    # ---- what it got

    def begin_poll(self) -> int:
        """A number for ``poll_number``; a poll that waits for a client that gave up ends."""
        self.take_back_lost_answer()
        if not (self.is_subscribed or self._is_manual):
            raise IllegalConsumerState("Illegal state: the consumer is not subscribed or assigned.")
        self.poll_number += 1
        self.on_change()
        return self.poll_number

    def poll_order(self) -> Sequence[TopicPartition]:
        """Assigned partitions, another one first each time, so that none starves."""
        partitions = [at for at in self.partitions if not self._may_come(at)]
        if not partitions:
            return ()
        self._turn = (self._turn + 1) % len(partitions)
        return partitions[self._turn :] + partitions[: self._turn]

    def step_over(self, at: TopicPartition, before: int, behind: int) -> None:
        """There is nothing to deliver in between: markers, aborted records, gaps."""
        if self._positions.get(at) == before:
            self._positions[at] = behind

    def deliver(self, delivery: Delivery) -> None:
        """An answer was written: the positions move, unless a seek or a rebalance did it."""
        for at, (before, behind) in delivery.moves.items():
            self.step_over(at, before, behind)
        if delivery.moves:
            self._unsettled = delivery

    def confirm(self, via: object) -> None:
        """A request came on this connection, where one follows the answer to the other."""
        if self._unsettled is not None and self._unsettled.via is via:
            self._unsettled = None

    def take_back_lost_answer(self) -> None:
        """Move the positions back if the connection was cut before the last answer was read.

        Called when the client makes its next request.
        """
        delivery, self._unsettled = self._unsettled, None
        if delivery is not None and delivery.was_lost():
            for at, (before, behind) in delivery.moves.items():
                if self._positions.get(at) == behind:
                    self._positions[at] = before

    def note_commit(self) -> None:
        """What was delivered is committed."""
        self._last_commit_ns = self._clock.monotonic_ns()

    def is_commit_due(self) -> bool:
        """Whether a poll commits what the polls before it delivered."""
        interval_ns = self.config.auto_commit_interval_ms * 1_000_000
        now_ns = self._clock.monotonic_ns()
        return self.config.is_auto_commit and now_ns - self._last_commit_ns >= interval_ns


def assign_ranges(
    subscriptions: Mapping[str, Collection[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Partitions of each member, topics in the order of their names.

    Of each topic, its subscribers in the order of their names get runs of partitions that differ by
    one at most, the longer ones first. Topics without a count do not exist and are left out.

    subscriptions       topics by member
    partition_counts    by topic
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        share, longer = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for index, member in enumerate(members):
            end = first + share + (index < longer)
            assigned[member] += [TopicPartition(topic, number) for number in range(first, end)]
            first = end
    return assigned


_log = structlog.get_logger(__name__)
_NS_PER_MS = 1_000_000
_SWEEP_NS = 1_000_000_000  # how often idle members are looked for, at most
_MEMBERS_MAX = 10_000  # of all groups: some 20 MB
_LEFT_MAX = 10_000  # groups without members whose last use is remembered


@dataclass(slots=True)
class Group:
    """The members of one group; none of them: it is forgotten."""

    name: str
    members: dict[str, Consumer] = field(default_factory=dict)
    seen: RegistryState | None = None  # topics as of the last rebalance


@operation_class()
class ConsumerGroups:
    """See the module."""

    def __init__(self, logs: Logs, runtime: Runtime, offsets: GroupOffsets) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._offsets = offsets
        self._random = runtime.random
        self._clock = runtime.clock
        self._timeout_ns = runtime.config.consumer_instance_timeout_ms * _NS_PER_MS
        # owned by the event loop; other threads look up single entries
        self._groups: dict[str, Group] = {}
        self._left_ms: dict[str, int] = {}  # wall clock, of groups without members
        self._member_count = 0
        self._next_sweep_ns = 0
        offsets.watch_use(self.used_ms)

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

        ConsumerExists; Overloaded; InvalidRequest for a name with control characters, or that no
        commit could hold.
        """
        self._sweep()
        for text, of in ((group, "group"), ("x" if name is None else name, "consumer")):
            fault = name_fault(text)
            if fault is not None:
                raise InvalidRequest(f"The name of the {of} {fault}")
        if name is None:
            name = f"{config.name_prefix}{self._random.uuid_bytes().hex()}"
        if self._member_count >= _MEMBERS_MAX:
            raise Overloaded(f"There are {_MEMBERS_MAX} consumer instances. Delete some.")
        found = self._groups.setdefault(group, Group(group))
        if name in found.members:
            raise ConsumerExists(
                f"Consumer instance {name} exists already in this group.", group=group, name=name
            )
        consumer = Consumer(self._logs, self._offsets, self._clock, group, name, config)
        consumer.last_used_ns = self._clock.monotonic_ns()
        found.members[name] = consumer
        self._member_count += 1
        return consumer

    @requires(Action.READ, Resource.GROUP, "group")
    def find(self, group: str, name: str) -> Consumer:
        """A member, whose idle time begins again; its assignment is up to date. UnknownConsumer."""
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
        sees: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Read these topics, or those that match; the group is rebalanced.

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

    @lists(Resource.GROUP)
    def names(self) -> list[str]:
        """Groups that have members."""
        self._sweep()
        return sorted(self._groups)

    # ---- parts

    def _sweep(self) -> None:
        """Remove members that were not used for ``consumer.instance.timeout.ms``."""
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
        """Rebalance when a topic was created, grown or deleted since."""
        if group.seen is not self._registry.state:
            self._rebalance(group)

    def _rebalance(self, group: Group) -> None:
        """Every subscribed member gets its partitions; what it keeps, it reads on where it was."""
        group.seen = self._registry.state
        counts = {each.name: each.partition_count for each in group.seen.topics.values()}
        offered = [name for name in counts if name not in INTERNAL_TOPICS]
        wanted = {
            name: member.wanted_topics(offered)
            for name, member in group.members.items()
            if member.is_subscribed
        }
        for name, partitions in assign_ranges(wanted, counts).items():
            group.members[name].assign(partitions)
