"""The orderly end of log directories: flush, close, checkpoints, marker, unlock; all in parallel.

The clean-shutdown marker of a directory is its last write and only made when every step before it
succeeded, its logs had been loaded, and no partition in it is out of service. Crash anywhere
before: the next start recovers. A directory whose load was stopped half way is closed alike, so
that what was recovered is not recovered again; it gets the marker when it had one, because what was
not loaded lies as a clean stop left it. Source: Kafka's LogManager.shutdown, log-lifecycle 11.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import KafkalogError
from kafkalog.manager.commands import FlushCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.threads import Threads
    from kafkalog.manager.checkpoints import Checkpoints
    from kafkalog.manager.log_dir_unit import LogDirUnit
    from kafkalog.manager.partition_table import PartitionTable

_log = structlog.get_logger(__name__)


def close_units(
    units: Sequence[LogDirUnit],
    table: PartitionTable,
    checkpoints: Checkpoints,
    threads: Threads,
) -> list[str]:
    """Close every directory on a thread ``log-closing-<dir>``; the paths that got no marker."""
    unclean: list[str] = []

    def close(unit: LogDirUnit) -> None:
        try:
            if not close_unit(unit, table, checkpoints):
                unclean.append(unit.log_dir.path)
        finally:
            unit.log_dir.release()

    started = [
        threads.start(f"log-closing-{unit.log_dir.path}", lambda unit=unit: close(unit))  # type: ignore[misc]
        for unit in units
    ]
    for thread in started:
        thread.join()
    return sorted(unclean)


def close_unit(unit: LogDirUnit, table: PartitionTable, checkpoints: Checkpoints) -> bool:
    """One directory; whether the next start finds it as a clean stop leaves it.

    A directory that the start had not begun to change stays as it was found.
    """
    log_dir = unit.log_dir
    logs = table.held_in(log_dir.path)
    if not log_dir.is_online or not checkpoints.were_read(log_dir):
        unit.stop()
        return log_dir.is_online
    try:
        for log in logs:  # a log without new records may have rebuilt indexes and snapshots
            unit.writer.submit(FlushCommand(log))
        # Behind the flushes' plans, which are made in the same drain: the logs are closed only
        # after stop() below has seen every sync return.
        unit.writer.stop()
        unit.flusher.stop()
        is_whole = all(log.recovery_point == log.log_end_offset for log in logs)
        for log in logs:
            with log_dir.guard():
                log.close()
        for log in logs:  # behind all trims: a journal commits them together
            with log_dir.guard():
                log.sync_closed()
        checkpoints.write_all(log_dir, is_stopped=True)
        is_loaded = log_dir.is_loaded and not checkpoints.awaits_futures(log_dir)
        has_all = is_loaded or log_dir.was_clean
        is_clean = is_whole and has_all and not table.out_of_service(log_dir.path)
        if is_clean and not any(log.is_broken for log in logs):
            log_dir.write_clean_shutdown_marker()
            return True
    except KafkalogError as error:
        _log.error("log_dir_not_closed_cleanly", log_dir=log_dir.path, reason=error.message)
        unit.stop()
    return False
