"""MetricsOptions: which series exist, and what one scrape asks for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.observe.exposition import Exposition

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence


class PartitionLevel(enum.Enum):
    """The detail of the series of partitions."""

    PARTITION = "partition"
    TOPIC = "topic"  # one series for the partitions of a topic
    NONE = "none"  # no series with a topic at all


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """The settings ``metrics.*``.

    ``partition_limit``: with more partitions than these PARTITION becomes TOPIC; 0: no limit.
    """

    partition_level: PartitionLevel = PartitionLevel.PARTITION
    partition_limit: int = 2_000
    topic_include: re.Pattern[str] | None = None
    topic_exclude: re.Pattern[str] | None = None
    has_kafka_aliases: bool = True
    has_kafka_exporter_names: bool = False

    def shows_topic(self, topic: str) -> bool:
        """Whether a topic has series; the whole name has to match."""
        if self.topic_include is not None and not self.topic_include.fullmatch(topic):
            return False
        return self.topic_exclude is None or not self.topic_exclude.fullmatch(topic)


@dataclass(frozen=True, slots=True)
class Question:
    """What one scrape asks for.

    ``families`` are beginnings of names; ``topics`` leaves series without a topic out. Empty: all.
    """

    exposition: Exposition = Exposition.TEXT
    families: Sequence[str] = ()
    topics: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it asks for every topic's series."""
        return not self.topics

    def shows_family(self, name: str) -> bool:
        """``name`` as the samples are called."""
        return not self.families or name.startswith(tuple(self.families))
