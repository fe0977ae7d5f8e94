"""The order in which Java and Scala list what they keep in hash maps: the tools' output follows it.

Source: `HashMap` and `String.hashCode` of Java 17, `mutable.HashMap` of Scala 2.13,
`TopicPartition.hashCode` of Kafka 4.1. Holds for tables without tree bins (at most 7 keys in a
bucket). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

K = TypeVar("K")

DEFAULT_CAPACITY = 16
_UINT32 = 0xFFFF_FFFF


def string_hash(text: str) -> int:
    """Of its UTF-16 units, as an unsigned number of 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        result = (31 * result + (high << 8) + low) & _UINT32
    return result


def topic_partition_hash(topic: str, partition: int) -> int:
    """Of Kafka's TopicPartition."""
    return (31 * (31 + partition) + string_hash(topic)) & _UINT32


def in_hash_map_order(
    keys: Iterable[K], hash_of: Callable[[K], int], capacity: int = DEFAULT_CAPACITY
) -> list[K]:
    """The keys as a map that was made for ``capacity`` of them and filled in this order has them.

    Those that share a bucket stay in the order in which they were put: Java appends, and a table
    that grows splits its buckets in order.
    """
    found = list(keys)
    size = 1
    while size < capacity or len(found) > size * 3 // 4:
        size *= 2

    return sorted(found, key=lambda key: _spread(hash_of(key)) & size - 1)


def as_a_broker_answers(names: Iterable[str]) -> list[str]:
    """Names whose order within each bucket is that of a broker's answer.

    The broker takes them from a map of Scala's, which keeps a bucket sorted by hash. Its table has
    as many buckets as the tool's, as long as both hold the same names.
    """
    return sorted(names, key=lambda name: _signed(_spread(string_hash(name))))


def _spread(value: int) -> int:
    """Java's and Scala's: the upper half counts in small tables, too."""
    return value ^ value >> 16


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
