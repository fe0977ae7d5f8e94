"""Append commands that stand together in a writer's queue: which of them may share a write.

Owns nothing. A run is a stretch of the queue that holds plain appends alone, sorted by log: between
two logs no order was promised, within one it is the queue's. Any other command ends the run.
Writer thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from kafkalog.log import append
from kafkalog.manager.commands import AppendCommand
from kafkalog.manager.values import Acks

if TYPE_CHECKING:
    from collections import deque

    from kafkalog.log.append import AppendGroup
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.manager.commands import Command


def is_plain(command: Command) -> TypeGuard[AppendCommand]:
    """Whether it may share a write: no producer, no expected offset, answered by the edge."""
    return (
        type(command) is AppendCommand
        and command.expected_offset is None
        and not command.is_internal
        and append.is_plain(command.records)
    )


def take_runs(
    first: AppendCommand, queue: deque[Command], limit: int
) -> dict[UnifiedLog, list[AppendCommand]]:
    """``first`` and the plain appends at the head of the queue, at most ``limit``, by log."""
    runs = {first.log: [first]}
    while limit and is_plain(command := queue[0]):
        queue.popleft()
        limit -= 1
        run = runs.get(command.log)
        if run is None:
            runs[command.log] = [command]
        else:
            run.append(command)
    return runs


class AppendPlans:
    """The groups of one run: each is planned when the one before it has been written."""

    __slots__ = ("_log", "_records", "_run", "_start", "_synced")

    def __init__(self, log: UnifiedLog, run: list[AppendCommand]) -> None:
        """``run``: plain appends to the log in queue order."""
        # constant after construction
        self._log = log
        self._run = run
        self._records = [command.records for command in run]
        self._synced = [command.acks is Acks.ALL for command in run]
        # owned by the writer thread
        self._start = 0

    def next(self) -> tuple[list[AppendCommand], AppendGroup | None]:
        """The next commands and their group; None: one to be run alone. Empty at the end."""
        start = self._start
        if start == len(self._run):
            return [], None
        group = append.plan(self._log, self._records, self._synced, start)
        is_group = len(group.answers) > 1
        self._start += len(group.answers) if is_group else 1
        return self._run[start : self._start], group if is_group else None
