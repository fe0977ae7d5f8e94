"""Consumer: one member of a group: what it asked for, what it was given, where it stands.

Owns positions. A position is the next offset to deliver; it is the group's commit, else what
``auto.offset.reset`` says, from the moment of the assignment on. It moves when an answer was
written, and moves back when that answer turns out to be lost: records may come twice, never not at
all. Owned by the event loop; never blocks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import IllegalConsumerState, InvalidRequest, KafkalogError, OffsetAboveLogEnd
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_manager import LogManager


class Reset(enum.Enum):
    """Where to begin without a commit, and where the position is outside the log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"  # an error


class Dialect(enum.Enum):
    """Whose client it is; see ``docs/http-consumers.md``."""

    CONFLUENT = "confluent"  # commits name the last record read, one is added
    STRIMZI = "strimzi"  # commits name the next record


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
    """What one answer held: (position before, position behind) of each partition.

    was_lost    whether its client cannot have got it all; asked at the next request
    via         the connection: another request on it says that the client got it all
    """

    moves: Mapping[TopicPartition, tuple[int, int]]
    was_lost: Callable[[], bool]
    via: object = None


class Consumer:
    """See the module."""

    def __init__(self, manager: LogManager, group: str, name: str, config: ConsumerConfig) -> None:
        # constant after construction
        self._manager = manager
        self.group = group
        self.name = name
        self.config = config
        # owned by the event loop
        self.last_used_ns = 0
        self.is_gone = False
        self.poll_number = 0  # of the newest poll: an older one that waits gives up
        self._last_commit_ns = manager.seams.clock.monotonic_ns()
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
    def is_reading(self) -> bool:
        """Whether it asked for anything."""
        return self.is_subscribed or self._is_manual

    @property
    def partitions(self) -> list[TopicPartition]:
        """Assigned, by topic and number."""
        return sorted(self._positions)

    @property
    def topics(self) -> list[str]:
        """Subscribed; of a pattern those that match now."""
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
        """By the group: what it keeps goes on, what is new begins where the group or reset says."""
        kept = self._positions
        self._positions = {at: kept.get(at) for at in partitions}
        self._look_up_positions()
        self.on_change()

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Instead of a subscription. IllegalConsumerState, UnknownTopic, UnknownPartition."""
        if self.is_subscribed:
            raise IllegalConsumerState("Illegal state: the consumer subscribed to topics.")
        for at in partitions:
            self._manager.group_offsets.check_exists(at)
        self._is_manual = bool(partitions)
        self.assign(partitions)

    # ---- where it stands

    def _look_up_positions(self) -> None:
        """As far as it is known now: groups may still be loaded, directories be offline."""
        for at, position in self._positions.items():
            if position is None:
                try:
                    self._positions[at] = self._first_position(at)
                except KafkalogError:
                    continue  # the poll meets it again and says so

    def _first_position(self, at: TopicPartition) -> int:
        committed = self._manager.group_offsets.committed_of(self.group, at)
        if committed is not None:
            return committed.offset
        return self._reset_position(self._log(at))

    def _reset_position(self, log: UnifiedLog) -> int:
        """OffsetAboveLogEnd for ``none``."""
        if self.config.reset is Reset.EARLIEST:
            return log.log_start_offset
        if self.config.reset is Reset.LATEST:
            return self.end_of(log)
        raise OffsetAboveLogEnd(
            f"{log.topic_partition} has no position and auto.offset.reset is none",
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )

    def end_of(self, log: UnifiedLog) -> int:
        """Behind the last record that this consumer may see."""
        if self.config.isolation is Isolation.LAST_STABLE:
            return log.last_stable_offset
        return log.high_watermark

    def _log(self, at: TopicPartition) -> UnifiedLog:
        return self._manager.log_of(at.topic, at.partition)

    def position(self, at: TopicPartition) -> int:
        """The next offset to deliver, inside the log. IllegalConsumerState when not assigned.

        A position outside is reset; errors as of a fetch.
        """
        self.check_assigned((at,))
        log = self._log(at)
        position = self._positions[at]
        if position is None:
            position = self._first_position(at)
        if not log.log_start_offset <= position <= log.log_end_offset:
            position = self._reset_position(log)
        self._positions[at] = position
        return position

    def positions(self) -> dict[TopicPartition, int]:
        """Of assigned partitions that exist, as far as they are known: what may be committed."""
        topics = self._manager.registry.topics
        return {
            at: known
            for at, known in self._positions.items()
            if known is not None and at.topic in topics
        }

    def check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """IllegalConsumerState unless all of them are."""
        missing = next((at for at in partitions if at not in self._positions), None)
        if missing is not None:
            raise IllegalConsumerState(
                f"Illegal state: no current assignment for partition {missing}",
                topic=missing.topic,
                partition=missing.partition,
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
        self.settle()
        if not self.is_reading:
            raise IllegalConsumerState("Illegal state: the consumer is not subscribed or assigned.")
        self.poll_number += 1
        self.on_change()
        return self.poll_number

    def poll_order(self) -> Sequence[TopicPartition]:
        """Assigned partitions, another one first each time, so that none starves."""
        partitions = self.partitions
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

    def settle(self) -> None:
        """The client speaks again: an answer that it cannot have got is taken back."""
        delivery, self._unsettled = self._unsettled, None
        if delivery is not None and delivery.was_lost():
            for at, (before, behind) in delivery.moves.items():
                if self._positions.get(at) == behind:
                    self._positions[at] = before

    def note_commit(self) -> None:
        """What was delivered is committed."""
        self._last_commit_ns = self._manager.seams.clock.monotonic_ns()

    def is_commit_due(self) -> bool:
        """Whether a poll commits what the polls before it delivered."""
        interval_ns = self.config.auto_commit_interval_ms * 1_000_000
        now_ns = self._manager.seams.clock.monotonic_ns()
        return self.config.is_auto_commit and now_ns - self._last_commit_ns >= interval_ns
