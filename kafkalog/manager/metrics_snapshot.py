"""What a scrape sees of the logs: a Snapshot of what is published; no disk, no lock.

Owns nothing. Each sample is made when the page asks for it, between turns of the event loop; one
sample is of one moment, different ones are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.manager.log_meter import MeteredLog
from kafkalog.observe.partition_metrics import LogDirSample, PartitionSample, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.cleaner.log_cleaner_manager import Standing
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.log_manager import LogManager
    from kafkalog.manager.values import Readiness


def take_snapshot(manager: LogManager, readiness: Readiness) -> Snapshot:
    """As of now."""
    topics = {topic.name: topic.partition_count for topic in list(manager.registry.topics.values())}
    return Snapshot(
        topics=topics,
        partitions=readiness.partitions,
        offline_partitions=readiness.offline_partitions,
        log_dirs=[
            LogDirSample(
                unit.log_dir.path,
                unit.log_dir.is_online,
                *manager.progress.remaining_in(unit.log_dir.path),
            )
            for unit in manager.units
        ],
        deletable=[each for each in manager.meter.deletable if each.topic in topics],
        samples=lambda: _samples(manager),
    )


def _samples(manager: LogManager) -> Iterator[PartitionSample]:
    standings = {each.log.topic_partition: each for each in manager.cleaning.states.standings}
    for log in manager.table.logs():
        metered = manager.meter.find(log) or MeteredLog(log)
        sample = PartitionSample(  # at once: replacing fields costs as much again
            log.topic_partition.topic,
            log.topic_partition.partition,
            log.size_bytes,
            len(log.segments),
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            metered.records,
            _seconds(metered.oldest_ms),
            _seconds(metered.newest_ms),
        )
        if log.lost_ranges:
            lost = sum(last - first + 1 for first, last in log.lost_ranges)
            sample = sample._replace(lost_offsets=lost)
        if log.config.is_compacted:
            standing = standings.get(log.topic_partition)
            if standing is not None and standing.log is log:
                sample = _with_standing(manager, sample, standing)
            sample = _with_last_clean(manager, sample, log.topic_partition)
        if log.config.archive_hold:
            sample = _with_archive(manager, sample, log)
        yield sample


def _with_standing(
    manager: LogManager, sample: PartitionSample, standing: Standing
) -> PartitionSample:
    """With what the cleaner saw at its last look."""
    dirty_bytes = 0 if standing.to_clean is None else standing.to_clean.cleanable_bytes
    failure = manager.cleaning.states.failure_of(standing.log.topic_partition)
    return sample._replace(
        dirty_ratio=standing.ratio,
        dirty_bytes=dirty_bytes,
        uncleanable_bytes=0 if failure is None else dirty_bytes,
    )


def _with_last_clean(
    manager: LogManager, sample: PartitionSample, topic_partition: TopicPartition
) -> PartitionSample:
    """With what the last clean since the start left for later."""
    observer = manager.cleaning.observer
    success_ms = observer.last_success_ms(topic_partition)
    waiting = observer.horizons_of(topic_partition)
    if success_ms is None or waiting is None:
        return sample
    return sample._replace(
        last_success_s=success_ms / 1000,
        tombstone_batches=waiting.batches,
        next_horizon_s=_seconds(waiting.next_ms),
    )


def _with_archive(manager: LogManager, sample: PartitionSample, log: UnifiedLog) -> PartitionSample:
    """With how far the archive is behind."""
    (archived,) = manager.archived_offsets.describe([log])
    return sample._replace(
        archive_lag=archived.lag,
        archive_held_segments=archived.held.segments,
        archive_held_bytes=archived.held.size_bytes,
    )


def _seconds(moment_ms: int | None) -> float | None:
    return None if moment_ms is None else moment_ms / 1000
