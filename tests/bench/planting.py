"""Put ready-made partition directories under stopped servers, the same files on both sides."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
)
from kafkalog.format.topic_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.bench.bench import Bench


def plant_unclean(
    bench: Bench, topic: str, sources: Sequence[Path], *, with_kafka: bool = True
) -> None:
    """Create ``topic`` on each side, a partition a source, stop, and leave it as after a crash.

    The next start recovers everything from the .log files of the sources.
    """
    with bench.running_daemon() as daemon:
        daemon.create_topic(topic, len(sources))
        daemon.stop()
        make_unclean(daemon.log_dirs[0], topic, sources)
    if not with_kafka:
        return
    with bench.running_broker() as broker:
        if broker is not None:
            broker.create_topic(topic, len(sources))
            broker.stop()
            make_unclean(broker.data, topic, sources)


def make_unclean(log_dir: Path, topic: str, sources: Sequence[Path]) -> None:
    """Of partition n only the .log files of source n (hard-linked ones would be written to) remain.

    No marker, no recovery point: every byte is to be checked, every index to be built.
    """
    for number, source in enumerate(sources):
        partition = empty_partition(log_dir, TopicPartition(topic, number))
        for path in source.iterdir():
            assert path.suffix == LOG_SUFFIX
            shutil.copyfile(path, partition / path.name)
    forget_clean_stop(log_dir)


def forget_recovery(log_dir: Path, topic: str) -> None:
    """After a start and a kill: nothing says any more that the log was recovered.

    The index files stay, as a crash leaves them: both loaders write them anew, and where one is
    missing both would scan the segment twice.
    """
    forget_snapshots(log_dir / f"{topic}-0")
    forget_clean_stop(log_dir)


def forget_snapshots(partition: Path) -> None:
    """Without a producer snapshot the state has to be built from the log."""
    for path in list(partition.glob(f"*{SNAPSHOT_SUFFIX}")):
        path.unlink()


def forget_clean_stop(log_dir: Path) -> None:
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (log_dir / name).unlink(missing_ok=True)


def plant_clean(
    log_dir: Path, files: Mapping[str, bytes], partitions: list[TopicPartition], end_offset: int
) -> None:
    """Under a cleanly stopped server: the same files for each partition, checkpoints to match."""
    for partition in partitions:
        target = empty_partition(log_dir, partition)
        for name, content in files.items():
            (target / name).write_bytes(content)
    note_clean_ends(log_dir, dict.fromkeys(partitions, end_offset))


def empty_partition(log_dir: Path, partition: TopicPartition) -> Path:
    """Its directory, in which only its metadata remains; for others to be put there."""
    target = log_dir / f"{partition.topic}-{partition.partition}"
    for path in list(target.iterdir()):
        if path.name != PARTITION_METADATA:
            path.unlink()
    return target


def note_clean_ends(log_dir: Path, end_offsets: Mapping[TopicPartition, int]) -> None:
    """Under a cleanly stopped server: checkpoints that say that all is flushed, of these only."""
    assert (log_dir / CLEAN_SHUTDOWN).exists()
    checkpoint = encode_offsets(end_offsets)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (log_dir / name).write_bytes(checkpoint)
