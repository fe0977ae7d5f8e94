"""Bodies of the v2 metadata answers as the API's description has them."""

from __future__ import annotations

from pydantic import RootModel

from kafkalog.server.answers import Body


class About(Body):
    """Who answers; ``bridge_version`` is what the Bridge's clients read."""

    bridge_version: str
    name: str
    version: str


class EmptyObject(Body):
    """An empty object."""


class BrokerIds(Body):
    """Node ids: one."""

    brokers: list[int]


class TopicNames(RootModel[list[str]]):
    """Sorted, internal topics too."""


class Replica(Body):
    """The one replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class TopicPartitionAnswer(Body):
    """A partition; one that is not served has leader -1 and its error."""

    partition: int
    leader: int
    replicas: list[Replica]
    error_code: int | None = None
    kafka_error: str | None = None
    error: str | None = None


class TopicPartitions(RootModel[list[TopicPartitionAnswer]]):
    """By number."""


class TopicAnswer(Body):
    """A topic with its effective configs as text."""

    name: str
    configs: dict[str, str]
    partitions: list[TopicPartitionAnswer]


class OffsetRange(Body):
    """Log start offset and high watermark."""

    beginning_offset: int
    end_offset: int
