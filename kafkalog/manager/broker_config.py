"""BrokerConfig: what the manager needs to know of the configuration, plain and frozen.

Made and validated by ``kafkalog/settings``, which declares every key, default and range; the
manager only reads it. A field is the Kafka key with underscores unless the comment names the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_config import LogConfig

# Topic overrides as texts -> the topic's whole configuration over the broker's defaults.
# Raises InvalidTopicConfig. The manager gets it from the settings at construction.
TopicConfigParser = Callable[[Mapping[str, str]], LogConfig]

_KAFKA_DEFAULTS = LogConfig()


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Defaults are Apache Kafka 4.1's where Kafka has the key."""

    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)  # Kafka's log.dir
    cordoned_log_dirs: tuple[str, ...] = ()  # some of log_dirs, or "*" alone
    node_id: int = 1
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    num_recovery_threads_per_data_dir: int = 2
    num_io_threads_per_data_dir: int = 2
    background_threads: int = 10
    log_flush_scheduler_interval_ms: int = INT64_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    # kafkalog's own
    http_produce_acks: str = "all"  # all, 1 or 0: for topics that do not fix theirs
    log_retention_clock_guard: bool = True
    max_partitions_per_topic: int = 10_000
    adopt_unknown_topics: bool | None = None  # None: only while no registry exists
    log_dir_min_free_bytes: int = 67_108_864
    log_recovery_corruption: str = "keep"  # keep, or kafka: plain truncation at the first bad batch
    queued_max_request_bytes: int = 268_435_456
    max_decompressed_batch_bytes: int = 67_108_864
    topic_defaults: LogConfig = _KAFKA_DEFAULTS
