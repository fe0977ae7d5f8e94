"""GroupOperations: groups as operators see them: listed, described, reset, deleted.

The part of the operation layer that is about groups; ``Operations`` holds it. Members and commits
are ``members`` and ``offsets``. Errors are those of ``errors.py``. Source: Kafka 4.1
``ConsumerGroupCommand``: what reset and describe do, and that a group with members is not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import lists, operation_class, requires
from kafkalog.errors import InvalidRequest, KafkalogError, NonEmptyGroup, UnknownGroup
from kafkalog.format.topic_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.groups.consumers import ConsumerGroups
    from kafkalog.broker.groups.offsets import GroupOffsets
    from kafkalog.format.disk.group_offsets import CommittedOffset
    from kafkalog.log.values import TimestampOffset


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group."""

    name: str
    member_count: int

    @property
    def state(self) -> str:
        """In Kafka's words: there is no moment at which a rebalance is under way."""
        return "Stable" if self.member_count else "Empty"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A commit beside its log; the log's offsets are None while it is not served."""

    at: TopicPartition
    committed: CommittedOffset
    log_start_offset: int | None
    log_end_offset: int | None  # for readers: the high watermark

    @property
    def lag(self) -> int | None:
        """As Kafka's tools: offsets from the commit to the end, deleted ones too; not negative."""
        if self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed.offset)

    @property
    def deleted(self) -> int | None:
        """Offsets of the lag that are below the log start: the group can read them no more."""
        if self.log_start_offset is None:
            return None
        return max(0, self.log_start_offset - self.committed.offset)


class ResetTarget(NamedTuple):
    """``to``: earliest, latest, timestamp, shift or offset; ``number``: that of the last three."""

    to: str
    number: int = 0


@operation_class()
class GroupOperations:
    """See the module."""

    def __init__(self, logs: Logs, offsets: GroupOffsets, members: ConsumerGroups) -> None:
        # constant after construction
        self._logs = logs
        self.offsets = offsets
        self.members = members

    # ---- the event loop; no disk

    @lists(Resource.GROUP)
    def summaries(self) -> list[GroupSummary]:
        """Groups that have commits or members, by name. NotReady while they are loaded."""
        names = {*self.offsets.groups(), *self.members.names()}
        return [GroupSummary(name, len(self.members.members(name))) for name in sorted(names)]

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def summary(self, group: str) -> GroupSummary:
        """One group. UnknownGroup."""
        members = self.members.members(group)
        if not members and not self.offsets.committed(group):
            message = f"Group {group} does not exist: it has no commit and no member."
            raise UnknownGroup(message, group=group)
        return GroupSummary(group, len(members))

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def lags(self, group: str) -> list[PartitionLag]:
        """Every commit of the group beside its log, by topic and partition."""
        found = []
        for at, committed in sorted(self.offsets.committed(group).items()):
            try:
                log = self._logs.log_of(at.topic, at.partition)
            except KafkalogError:
                found.append(PartitionLag(at, committed, None, None))
                continue
            found.append(PartitionLag(at, committed, log.log_start_offset, log.high_watermark))
        return found

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def check_no_members(self, group: str) -> None:
        """NonEmptyGroup: members would go on from their own positions and commit those."""
        count = len(self.members.members(group))
        if count:
            raise NonEmptyGroup(
                f"The group has {count} member{'s' if count > 1 else ''}. Delete its consumer "
                "instances first.",
                group=group,
                members=count,
            )

    @requires(Action.READ, Resource.GROUP, "group")
    def reset_scope(
        self,
        group: str,
        topics: Collection[str] | None,
        partitions: Collection[TopicPartition] | None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What a reset is about, with the commits of now: what is named, else all that has one.

        UnknownTopic, UnknownPartition, UnknownGroup when nothing is named and it has no commit.
        """
        committed = self.offsets.committed(group)
        if topics is None and partitions is None:
            if not committed:
                raise UnknownGroup("The group has no commit; name topics.", group=group)
            return dict(committed)
        named = dict.fromkeys(partitions or ())
        for topic in topics or ():
            count = self._logs.registered(topic).partition_count
            named.update(dict.fromkeys(TopicPartition(topic, n) for n in range(count)))
        for at in named:
            self.offsets.check_exists(at)
        return {at: committed.get(at) for at in named}

    @requires(Action.DESCRIBE, Resource.TOPIC, "at")
    def reset_offset(
        self,
        at: TopicPartition,
        old: CommittedOffset | None,
        target: ResetTarget,
        found: TimestampOffset | None = None,
    ) -> int:
        """The offset that a reset commits; errors as of a fetch.

        ``found``: the first record at or after the target's time. A shift and an offset stop at the
        ends of the log, and a time after the last record is the end.
        """
        log = self._logs.log_of(at.topic, at.partition)
        low, high = log.log_start_offset, log.high_watermark
        if target.to == "earliest":
            return low
        if target.to == "latest":
            return high
        if target.to == "timestamp":
            return high if found is None else found.offset
        if target.to == "shift" and old is None:
            raise InvalidRequest(f"{at} has no commit to shift")
        base = old.offset if target.to == "shift" and old is not None else 0
        return min(max(base + target.number, low), high)
