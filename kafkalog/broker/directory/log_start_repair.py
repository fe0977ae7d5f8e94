"""Settles log starts about which the two files of a log directory disagree, while no daemon runs.

The file under a checksum is believed: what it says was true when it was written, and a line of
Kafka's file that says more, without its leader epochs saying the same, has rotted. Who wants the
higher start deletes records up to it instead, while the daemon runs. Source:
``log/state/start_offsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.directory.log_dir import LOG_START_OFFSETS
from kafkalog.format.disk.checkpoints import decode_leader_epochs, encode_offsets
from kafkalog.format.disk.file_names import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX, parse_segment_file
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import TopicPartition, encode_id
from kafkalog.log.state.start_offsets import LogStart, log_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.topics.registry import RegisteredTopic
    from kafkalog.env.filesystem import Filesystem


class StartRepair(NamedTuple):
    """What settles all of a directory: the new ``log-start-offset-checkpoint``, a line for each."""

    data: bytes
    messages: tuple[str, ...]


def disputed_starts(
    log_dir: LogDir, filesystem: Filesystem, topics: Mapping[str, RegisteredTopic]
) -> dict[TopicPartition, LogStart]:
    """The logs from which a start would delete nothing, with both offsets; guarded.

    ``log_dir`` is open, so that its ``meta.properties`` were read.
    """
    names = {encode_id(topic.topic_id): topic.name for topic in topics.values()}
    lines = log_dir.read_checkpoint(LOG_START_OFFSETS)
    disputed: dict[TopicPartition, LogStart] = {}
    for key, entry in log_dir.read_proofs().items():
        if key.topic_id not in names:
            continue
        partition = TopicPartition(names[key.topic_id], key.partition)
        kafkas, directory = lines.get(partition, 0), f"{log_dir.path}/{partition}"
        if kafkas <= entry.log_start_offset:
            continue  # as nearly always: nothing is read
        with log_dir.guard():
            if not filesystem.exists(directory):
                continue
            bases, epoch = _bases_in(directory, filesystem), _first_epoch_in(directory, filesystem)
        start = log_start(kafkas, entry.log_start_offset, bases, epoch, clean=False)
        if start.is_disputed:
            disputed[partition] = start
    return disputed


def plan_start_repair(
    log_dir: LogDir, filesystem: Filesystem, topics: Mapping[str, RegisteredTopic]
) -> StartRepair | None:
    """How to settle them; None: there is nothing to settle. Writes nothing. Guarded."""
    disputed = disputed_starts(log_dir, filesystem, topics)
    if not disputed:
        return None
    lines = log_dir.read_checkpoint(LOG_START_OFFSETS)
    for partition, start in disputed.items():
        assert start.other is not None, "a disputed start has another one"
        lines[partition] = start.other
    return StartRepair(
        encode_offsets(lines),
        tuple(
            f"{partition} starts at {start.other} again, as kafkalog.checkpoint says: the line "
            f"with {start.offset} has rotted"
            for partition, start in sorted(disputed.items())
        ),
    )


def _bases_in(directory: str, filesystem: Filesystem) -> list[int]:
    """Base offsets of the segments, rising."""
    bases = []
    for name in filesystem.list_dir(directory):
        try:
            parsed = parse_segment_file(name)
        except FormatError:
            continue  # nothing's name
        if parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.stage:
            bases.append(parsed.offset)
    return sorted(bases)


def _first_epoch_in(directory: str, filesystem: Filesystem) -> int | None:
    """Where the first leader epoch begins."""
    try:
        epochs = decode_leader_epochs(
            filesystem.read_file(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        )
    except (FileNotFoundError, FormatError):
        return None
    return epochs[0][1] if epochs else None
