"""BrokerConfig: what the manager needs to know of the configuration, plain and frozen.

Made and validated by ``kafkalog/settings``, which declares every key, default and range; the
manager only reads it. A field is the Kafka key with underscores unless the comment names the key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kafkalog.cleaner.config import LogCleanerConfig, TombstoneHorizon
from kafkalog.format.integers import INT64_MAX
from kafkalog.log.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalog.broker.values import ConfigEntry


class ConfigRules(Protocol):
    """Names, values and sources of what changes at run time; pure. The settings satisfy it.

    overrides are a topic's configs as texts, dynamic the broker's. InvalidTopicConfig for a wrong
    topic config, InvalidRequest for a wrong dynamic one.
    """

    def plain_texts(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Configs by key, durations and sizes (7d, 1GiB) as Kafka's plain numbers."""

    def topic_config(self, overrides: Mapping[str, str], dynamic: Mapping[str, str]) -> LogConfig:
        """A topic's whole configuration over the broker's defaults."""

    def topic_defaults(self, dynamic: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic without overrides."""

    def cleaner_config(self, dynamic: Mapping[str, str]) -> LogCleanerConfig:
        """The configuration of the log cleaner."""

    def log_dir_config(self, dynamic: Mapping[str, str]) -> LogDirConfig:
        """What changes of the log directories; entries that name none are left in."""

    def describe_topic_config(
        self, overrides: Mapping[str, str], dynamic: Mapping[str, str]
    ) -> Sequence[ConfigEntry]:
        """Every topic key with its sources, by name."""

    def describe_broker_config(self, dynamic: Mapping[str, str]) -> Sequence[ConfigEntry]:
        """Every broker key with its sources, by name."""


OPEN_FILES_MIN = 16


def cordoned_fault(log_dirs: Collection[str], cordoned: Sequence[str]) -> str | None:
    """Why ``cordoned.log.dirs`` cannot be this; None: it can."""
    known = {path.rstrip("/") for path in log_dirs}
    if tuple(cordoned) == ("*",) or known.issuperset(path.rstrip("/") for path in cordoned):
        return None
    return "must name directories of log.dirs, or be * alone"


@dataclass(frozen=True, slots=True)
class LogDirConfig:
    """What of the log directories may change at run time."""

    cordoned_log_dirs: tuple[str, ...]  # some of log_dirs, or "*" alone
    move_bytes_per_second: int


_KAFKA_DEFAULTS = LogConfig()


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Defaults are Apache Kafka 4.1's where Kafka has the key."""

    log_dirs: tuple[str, ...] = ("/var/lib/kafkalog",)
    cordoned_log_dirs: tuple[str, ...] = ()  # some of log_dirs, or "*" alone
    node_id: int | None = None  # None: that of the log directories
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
    metrics_records_max_bytes_per_second: int = 33_554_432
    replica_alter_log_dirs_io_max_bytes_per_second: int = INT64_MAX
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728  # bytes
    log_cleaner_io_buffer_size: int = 524_288  # bytes
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_backoff_ms: int = 15_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_commit_required_acks: int = -1  # -1: synced; 0 and 1: in the page cache
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    transaction_max_timeout_ms: int = 900_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_state_log_segment_bytes: int = 104_857_600
    # kafkalog's own
    log_cleaner_tombstone_horizon: str = "batch"  # batch, or segment: the rule before Kafka 3.1
    http_produce_acks: str = "all"  # all, 1 or 0: for topics that do not fix theirs
    archive_hold_gives_way_when_full: bool = False
    log_retention_clock_guard: bool = True
    consumer_instance_timeout_ms: int = 300_000
    max_partitions_per_topic: int = 10_000
    adopt_unknown_topics: bool | None = None  # None: only while no registry exists
    create_missing_partitions: bool = False
    log_dir_min_free_bytes: int = 67_108_864
    log_dir_max_open_files: int = 4_096
    log_recovery_corruption: str = "keep"  # keep, or kafka: plain truncation at the first bad batch
    queued_max_request_bytes: int = 268_435_456
    max_decompressed_batch_bytes: int = 67_108_864
    topic_defaults: LogConfig = _KAFKA_DEFAULTS

    def within_descriptors(self, limit: int) -> BrokerConfig:
        """For a process that may have ``limit`` descriptors: at most half are kept for segments.

        The other half is for what is not bounded: connections, unsynced segments, rolls,
        checkpoints, recovery.
        """
        share = max(limit // 2 // len(self.log_dirs), OPEN_FILES_MIN)
        return replace(self, log_dir_max_open_files=min(self.log_dir_max_open_files, share))

    @property
    def log_dir_config(self) -> LogDirConfig:
        """What of the directories may change."""
        return LogDirConfig(
            self.cordoned_log_dirs, self.replica_alter_log_dirs_io_max_bytes_per_second
        )

    @property
    def cleaner(self) -> LogCleanerConfig:
        """What the threads of the log cleaner are given."""
        return LogCleanerConfig(
            threads=self.log_cleaner_threads,
            dedupe_buffer_size_bytes=self.log_cleaner_dedupe_buffer_size,
            io_buffer_size_bytes=self.log_cleaner_io_buffer_size,
            io_buffer_load_factor=self.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=self.log_cleaner_io_max_bytes_per_second,
            backoff_ms=self.log_cleaner_backoff_ms,
            tombstone_horizon=TombstoneHorizon(self.log_cleaner_tombstone_horizon),
            max_decompressed_bytes=self.max_decompressed_batch_bytes,
        )
