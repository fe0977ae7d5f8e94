"""Checkpoint files of log directories: what a daemon last wrote down of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.disk.checkpoints import decode_offsets
from kafkalog.format.integers import FormatError
from kafkalog.spark.logs.object_store import shown

if TYPE_CHECKING:
    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.topic_names import TopicPartition


class Checkpoints:
    """Files that are decoded when they changed, as every partition asks for them. One thread."""

    def __init__(self, filesystem: ReadFilesystem) -> None:
        self._filesystem = filesystem
        self._known: dict[str, tuple[bytes, dict[TopicPartition, int]]] = {}

    def offsets(self, log_dir: str, name: str) -> dict[TopicPartition, int]:
        """All offsets of a checkpoint, none without one. Raises CorruptCheckpoint, OSError."""
        path = f"{log_dir}/{name}"
        try:
            data = self._filesystem.read_file(path)
        except FileNotFoundError:
            return {}
        known = self._known.get(path)
        if known is None or known[0] != data:
            try:
                known = data, decode_offsets(data)
            except FormatError as error:
                raise CorruptCheckpoint(error.reason, file=shown(path), position=0) from error
            self._known[path] = known
        return known[1]
