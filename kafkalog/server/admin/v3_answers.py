"""Entities of the v3 routes, as the REST Proxy's clients know them, and pages of them."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

from kafkalog.server.protocol.json_schema import AnswerBody

E = TypeVar("E")


class EntityMetadata(AnswerBody):
    """Where the entity is, and its Confluent resource name."""

    url: str = msgspec.field(name="self")
    resource_name: str


class PageMetadata(AnswerBody):
    """Where this page is, and the next one; null: this is the last."""

    url: str = msgspec.field(name="self")
    next: str | None


class Related(AnswerBody):
    """A relation is an address."""

    related: str


class Page(AnswerBody, Generic[E]):
    """A page of entities in the order of their names or numbers."""

    kind: str
    metadata: PageMetadata
    data: list[E]


class Entity(AnswerBody):
    """What every entity has."""

    kind: str
    metadata: EntityMetadata
    cluster_id: str


class KafkaCluster(Entity):
    """The one cluster."""

    kind: Literal["KafkaCluster"]
    controller: Related
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class KafkaClusterList(Page[KafkaCluster]):
    """One."""

    kind: Literal["KafkaClusterList"]


class KafkaBroker(Entity):
    """The one broker."""

    kind: Literal["KafkaBroker"]
    broker_id: int
    host: str
    port: int
    rack: None
    configs: Related
    partition_replicas: Related


class KafkaBrokerList(Page[KafkaBroker]):
    """One."""

    kind: Literal["KafkaBrokerList"]


class OfflinePartition(AnswerBody):
    """A partition that is not served, and why."""

    partition_id: int
    error_code: int
    kafka_error: str
    error: str


class KafkaTopic(Entity):
    """A topic; id, overrides and offline partitions are kafkalog's additions."""

    kind: Literal["KafkaTopic"]
    topic_name: str
    topic_id: str
    is_internal: bool
    replication_factor: Literal[1]
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related
    config_overrides: dict[str, str]
    offline_partitions: list[OfflinePartition]
    authorized_operations: list[str]


class KafkaTopicList(Page[KafkaTopic]):
    """By name."""

    kind: Literal["KafkaTopicList"]


class Synonym(AnswerBody):
    """One link of a config's chain of sources."""

    name: str
    value: str | None
    source: str


class KafkaTopicConfig(Entity):
    """A config of a topic with its sources, the strongest first."""

    kind: Literal["KafkaTopicConfig"]
    topic_name: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[Synonym]


class KafkaTopicConfigList(Page[KafkaTopicConfig]):
    """By topic and name."""

    kind: Literal["KafkaTopicConfigList"]


class KafkaBrokerConfig(Entity):
    """A config of the broker, likewise."""

    kind: Literal["KafkaBrokerConfig"]
    broker_id: int
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[Synonym]


class KafkaBrokerConfigList(Page[KafkaBrokerConfig]):
    """By name."""

    kind: Literal["KafkaBrokerConfigList"]


class KafkaClusterConfig(Entity):
    """A config of the broker that changes at run time."""

    kind: Literal["KafkaClusterConfig"]
    config_type: Literal["BROKER"]
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: list[Synonym]


class KafkaClusterConfigList(Page[KafkaClusterConfig]):
    """By name."""

    kind: Literal["KafkaClusterConfigList"]


class KafkaPartition(Entity):
    """A partition; one that is not served has no leader."""

    kind: Literal["KafkaPartition"]
    topic_name: str
    partition_id: int
    leader: Related | None
    replicas: Related
    reassignment: Related


class KafkaPartitionList(Page[KafkaPartition]):
    """By number."""

    kind: Literal["KafkaPartitionList"]


class KafkaReplica(Entity):
    """The one replica of a partition."""

    kind: Literal["KafkaReplica"]
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class KafkaReplicaList(Page[KafkaReplica]):
    """Of a partition: one. Of a broker: by topic and number."""

    kind: Literal["KafkaReplicaList"]


class KafkaPartitionWithOffsets(Entity):
    """The requested offsets; -1 when nothing is found by a time."""

    kind: Literal["KafkaPartitionWithOffsets"]
    topic_name: str
    partition_id: int
    earliest_offset: int | None = None
    latest_offset: int | None = None
    max_timestamp_offset: int | None = None
    offset: int | None = None
    timestamp: int | None = None


class DeletedRecordsEntity(Entity):
    """What ``records:delete`` left."""

    kind: Literal["KafkaDeletedRecords"]
    topic_name: str
    partition_id: int
    low_watermark: int
