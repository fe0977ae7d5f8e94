"""Which member of a group reads which partition: Kafka's range assignment, and topic patterns.

Pure. Source: Kafka 4.1 ``RangeAssignor`` (members without a rack).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.format.topic_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


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
