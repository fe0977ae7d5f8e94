"""Plain twin of the partitioner of Kafka's producer."""

from __future__ import annotations


def murmur2(data: bytes) -> int:
    """Java's 32-bit hash as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of Kafka's producer."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
