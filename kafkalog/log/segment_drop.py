"""Segments that a load may not serve, because offsets before them are gone.

With ``keep`` they are set aside: renamed to ``<base>.log.behind-<offset>.torn`` and never deleted.
With ``kafka`` they are deleted as Kafka does it: ``.deleted`` now, removed by a task later. Runs in
the loader. A crash leaves some of the names changed; the next load finds the same reason again, or
removes what is ``.deleted``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.format.file_names import DELETED_SUFFIX
from kafkalog.log.local_log import DELETE_FILE_TASK
from kafkalog.log.recovery_policy import TORN_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.environment import LogEnvironment
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.recovery_policy import Corruption

_log = structlog.get_logger(__name__)


def drop(
    environment: LogEnvironment,
    config: LogConfig,
    segments: Sequence[LogSegment],
    corruption: Corruption,
    end_offset: int,
) -> None:
    """Take segments, which are in no set any more, out of service; the log ends at end_offset.

    Durable on return: their offsets are given anew, and no power cut may bring the old ones back.
    """
    if not segments:
        return
    rename(environment.filesystem, segments, corruption, end_offset)
    segments[0].log_file.sync_name()
    if corruption == "keep":
        return

    def delete_files() -> None:
        for segment in segments:
            segment.delete_files()

    environment.scheduler.schedule_once(
        DELETE_FILE_TASK, environment.guarded(delete_files), config.file_delete_delay_ms
    )


def rename(
    filesystem: Filesystem, segments: Sequence[LogSegment], corruption: Corruption, end_offset: int
) -> None:
    """Only the names; who loads the directory anew afterwards removes what is ``.deleted``."""
    for segment in segments:
        if corruption == "kafka":
            segment.change_suffix(DELETED_SUFFIX)
            continue
        segment.change_suffix(_free_suffix(filesystem, segment, end_offset))
        segment.close_handles()
        _log.error("segment_set_aside", path=segment.log_file.path)


def _free_suffix(filesystem: Filesystem, segment: LogSegment, end_offset: int) -> str:
    """One under which nothing lies yet."""
    suffix, count = f".behind-{end_offset}{TORN_SUFFIX}", 1
    while filesystem.exists(f"{segment.log_file.path}{suffix}"):
        count += 1
        suffix = f".behind-{end_offset}.{count}{TORN_SUFFIX}"
    return suffix
