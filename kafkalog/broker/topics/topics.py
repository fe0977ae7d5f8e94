"""TopicOperations: create, grow, configure and delete topics, with the rules about their names.

The part of the operation layer about topics. Everything blocks on the disk and is called from a
pool. Errors are those of ``errors.py``, in Kafka's order and words.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import open_to_all, operation_class, requires
from kafkalog.broker.topics.registry import RegisteredTopic
from kafkalog.broker.values import TopicDescription
from kafkalog.errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicConfig,
    InvalidTopicName,
    TopicCollision,
    TopicExists,
    UnknownTopic,
)
from kafkalog.format.topic_names import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    ZERO_ID,
    collision_key,
    encode_id,
    topic_name_fault,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.groups.offsets import GroupOffsets
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.changes import TopicChanges
    from kafkalog.broker.values import ConfigChange, ConfigEntry
    from kafkalog.log.log_config import LogConfig

_CLOSED_TO_CLIENTS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}


@operation_class()
class TopicOperations:
    """See the module."""

    def __init__(
        self, logs: Logs, runtime: Runtime, changes: TopicChanges, group_offsets: GroupOffsets
    ) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._config = runtime.config
        self._changes = changes
        self._group_offsets = group_offsets

    @property
    @open_to_all
    def default_partition_count(self) -> int:
        """Of a topic that is created without saying one: ``num.partitions``."""
        return self._config.num_partitions

    @property
    @open_to_all
    def default_config(self) -> LogConfig:
        """Of a topic that is created without overrides."""
        return self._logs.topic_defaults()

    @requires(Action.DESCRIBE, Resource.TOPIC, "name")
    def describe(self, name: str) -> TopicDescription:
        """The topic with its effective configs; UnknownTopic.

        Of overrides that this version does not take ``configs`` has none.
        """
        return self._description(self._logs.registered(name))

    @requires(Action.CREATE, Resource.TOPIC, "name")
    def create(
        self,
        name: str,
        partition_count: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
        validate_only: bool = False,
    ) -> TopicDescription:
        """Create a topic; durable on return. ``partition_count`` None or -1: ``num.partitions``.

        InvalidTopicName, TopicExists, TopicCollision, InvalidPartitions, InvalidTopicConfig,
        InvalidRequest (replication factor, internal name), StorageFault.
        """
        overrides = self._logs.rules.plain_texts(configs or {})
        count = partition_count
        if count is None or count == -1:
            count = self.default_partition_count
        with self._registry.edit():
            self._validate_new(name, count, replication_factor)
            draft = RegisteredTopic(ZERO_ID, name, count, overrides)
            self._logs.validate_overrides(overrides)
            if validate_only:
                return self._description(draft)
            self._group_offsets.forget_topic(name)  # a crash may have left some
            return self._description(self._changes.create(name, count, overrides))

    @requires(Action.CREATE, Resource.TOPIC, "name")
    def ensure(self, name: str) -> None:
        """Create the topic with the defaults unless it exists (``auto.create.topics.enable``)."""
        if name in self._registry.state.topics:
            return
        if not self._config.auto_create_topics_enable:
            raise UnknownTopic(f"Topic {name} does not exist", topic=name)
        try:
            self.create(name)
        except TopicExists:
            return  # another request was faster

    @requires(Action.DELETE, Resource.TOPIC, "name")
    def delete(self, name: str) -> None:
        """Delete a topic; its directories are renamed on return and removed later."""
        with self._registry.edit():
            self._logs.registered(name)
            refuse_internal(name, "deleted")
            self._changes.delete(name)
        self._group_offsets.forget_topic(name)

    @requires(Action.ALTER, Resource.TOPIC, "name")
    def create_partitions(
        self, name: str, partition_count: int, *, validate_only: bool = False
    ) -> TopicDescription:
        """Let a topic grow to partition_count, never shrink; all at once, durable on return.

        UnknownTopic, InvalidTopicName (internal), InvalidPartitions, StorageFault.
        """
        with self._registry.edit():
            topic = self._logs.registered(name)
            refuse_internal(name, "altered")
            self._validate_growth(topic, partition_count)
            if validate_only:
                return self._description(replace(topic, partition_count=partition_count))
            return self._description(self._changes.add_partitions(name, partition_count))

    @requires(Action.ALTER, Resource.TOPIC, "name")
    def alter_configs(
        self,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
        topic_id: str | None = None,
    ) -> TopicDescription:
        """Set and delete configs of a topic, all or none; durable and in force on return.

        ``topic_id``: of no other topic of that name.
        UnknownTopic, InvalidTopicConfig, InvalidRequest (one config twice), StorageFault.
        """
        with self._registry.edit():
            topic = self._logs.registered(name, topic_id)
            # Not of this topic: its own configs may be what is wrong, after a change of the file.
            known = {entry.name for entry in self._logs.rules.describe_topic_config({}, {})}
            for change in changes:  # deleting nothing is fine, deleting what is misspelt is not
                if change.value is None and change.name not in known | topic.overrides.keys():
                    self._logs.validate_overrides({change.name: ""})
            overrides = self._logs.rules.plain_texts(altered(topic.overrides, changes))
            self._logs.validate_overrides(overrides)
            if validate_only:
                return self._description(replace(topic, overrides=overrides))
            return self._description(self._changes.alter_configs(name, overrides))

    # ---- rules

    def _validate_new(self, name: str, count: int, replication_factor: int | None) -> None:
        """Kafka's order: name, existence, collision, counts."""
        fault = topic_name_fault(name)
        if fault is not None:
            raise InvalidTopicName(fault, topic=name[:300])
        refuse_internal(name, "created")
        topics = self._registry.state.topics
        if name in topics:
            raise TopicExists(f"Topic '{name}' already exists.", topic=name)
        key = collision_key(name)
        clash = next((each for each in topics if collision_key(each) == key), None)
        if clash is not None:
            raise TopicCollision(
                f"Topic '{name}' collides with existing topic: {clash}", topic=name, existing=clash
            )
        self._check_count(count)
        if replication_factor not in (None, 1, -1):
            raise InvalidRequest(
                f"Replication factor {replication_factor} is larger than the one available broker.",
                replication_factor=replication_factor,
            )

    def _validate_growth(self, topic: RegisteredTopic, count: int) -> None:
        """Kafka's words."""
        now = topic.partition_count
        if count == now:
            raise InvalidPartitions(f"Topic already has {now} partition(s).", partitions=now)
        if count < now:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {now} partition(s); {count} would not be an "
                "increase.",
                partitions=now,
            )
        self._check_count(count)

    def _check_count(self, count: int) -> None:
        most = self._config.max_partitions_per_topic
        if not 1 <= count <= most:
            raise InvalidPartitions(
                f"Number of partitions must be 1 to {most}, not {count}.", partitions=count
            )

    def _description(self, topic: RegisteredTopic) -> TopicDescription:
        """Of the topic as it is given, which may be a draft; its partitions are those of now."""
        registered = self._registry.state.topics.get(topic.name)
        return TopicDescription(
            name=topic.name,
            topic_id=encode_id(topic.topic_id),
            partition_count=topic.partition_count,
            is_internal=topic.name in INTERNAL_TOPICS,
            overrides=topic.overrides,
            configs=self._configs(topic.overrides),
            faults={} if registered is None else self._logs.faults_of(registered),
        )

    def _configs(self, overrides: Mapping[str, str]) -> Sequence[ConfigEntry]:
        rules, dynamic = self._logs.rules, self._registry.state.broker_configs
        try:
            return rules.describe_topic_config(overrides, dynamic)
        except InvalidTopicConfig:  # the topic is not served, and its partitions' faults say why
            taken: dict[str, str] = {}  # what this version takes
            for key, text in overrides.items():
                with suppress(InvalidTopicConfig):
                    self._logs.validate_overrides({**taken, key: text})
                    taken[key] = text
            return rules.describe_topic_config(taken, dynamic)


def is_closed_to_clients(topic: str) -> bool:
    """Whether it is one of Kafka's own, which clients only read."""
    return topic in _CLOSED_TO_CLIENTS


def refuse_internal(topic: str, verb: str) -> None:
    """Kafka's own topics are read-only for clients."""
    if is_closed_to_clients(topic):
        raise InvalidTopicName(f"Internal topic {topic} cannot be {verb} by clients", topic=topic)


def altered(configs: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
    """The configs after the changes; InvalidRequest in Kafka's words when one is named twice."""
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"Error due to duplicate config keys : {','.join(twice)}")
    altered = {name: text for name, text in configs.items() if name not in names}
    altered.update({each.name: each.value for each in changes if each.value is not None})
    return altered
