"""LogConfig: the topic-level configuration of one partition, plain and frozen.

Made and validated by ``settings.py`` (names, defaults, ranges, synonyms); the rings below only read
it. Kafka's key for a field is its name with dots: ``segment_bytes`` is ``segment.bytes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.format.integers import INT64_MAX


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Defaults are Apache Kafka 4.1's."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    segment_bytes: int = 1_073_741_824
    internal_segment_bytes: int | None = None  # beats segment_bytes; below 1 MiB allowed
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4_096
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    # kafkalog's own topic keys
    http_produce_acks: str | None = None  # all, 1 or 0: fixes the durability class of the topic
    quota_bytes: int = -1  # of all partitions of the topic together; -1: none
    archive_hold: bool = False  # size and time wait for the archived offset
    archive_hold_max_bytes: int = -1  # that this keeps in a partition; -1: all

    @property
    def max_segment_bytes(self) -> int:
        """The size at which a segment rolls."""
        if self.internal_segment_bytes is not None:
            return self.internal_segment_bytes
        return self.segment_bytes

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy holds compact (also with delete)."""
        return "compact" in self.cleanup_policy

    @property
    def has_delete_policy(self) -> bool:
        """Whether cleanup.policy holds delete: size and time retention and delete-records apply."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Age at which a segment rolls: never above max.compaction.lag.ms on compacted topics."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
