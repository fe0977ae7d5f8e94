"""LogEnvironment: everything a log needs from outside itself, bundled once per log directory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.errors import StorageFault
from kafkalog.log.index_cache import DEFAULT_CAPACITY_BYTES, IndexCache
from kafkalog.log.open_files import DEFAULT_CAPACITY, OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.scheduler import Scheduler
    from kafkalog.env.threads import Threads
    from kafkalog.log.producer_append_info import ProducerBatch, ProducerCheck
    from kafkalog.log.producer_state import ProducerStateEntry

    NoteLost = Callable[[str, int, int | None], None]


def _ignore(_segments: int, _bytes: int) -> None:
    """Nobody listens."""


def _go_on() -> None:
    """Nobody stops a load, or counts what it tells."""


def _told(_path: str, _first_offset: int, _last_offset: int | None) -> None:
    """The line in the log says it all."""


def _any_batch(_batch: ProducerBatch, _entry: ProducerStateEntry | None) -> None:
    """Nobody is fenced, and nobody coordinates transactions."""


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The seams and the shared caches.

    ``io_guard`` is entered around disk work that runs outside a command of the writer (the
    ``delete-file`` tasks); the manager passes the guard of the log directory, which decides what an
    OSError means. Commands and reads are guarded by their callers. ``note_recovery`` hears how
    many segments and bytes more (or, negative, fewer) wait for recovery; on any recovery thread.
    ``check_stop`` is asked there before each chunk of an unclean load's scans, and raises
    LoadStopped to end the load. ``note_lost`` hears of each hole that a load has told of: the log
    it was in, its first and last offset (None: up to the end); what it raises ends the load.
    ``note_start_contradiction`` hears that two files say different things of a log's start.
    ``check_producer`` raises why a client's batch of a producer may
    not be appended now, beyond the log's own rules; asked on the writer thread.
    """

    filesystem: Filesystem
    clock: Clock
    scheduler: Scheduler
    random: Random
    index_cache: IndexCache
    open_files: OpenFiles
    io_guard: Callable[[], AbstractContextManager[object]] = nullcontext
    note_recovery: Callable[[int, int], None] = _ignore
    check_stop: Callable[[], None] = _go_on
    note_lost: NoteLost = _told
    note_start_contradiction: Callable[[], None] = _go_on
    check_producer: ProducerCheck = _any_batch

    def guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Body of a delayed task: work under the guard; nothing on a directory that has failed.

        What stays behind is removed by the next load of the directory.
        """

        def body() -> None:
            try:
                with self.io_guard():
                    work()
            except StorageFault as fault:
                _log.warning("delayed_deletion_given_up", reason=fault.message)

        return body

    @classmethod
    def create(
        cls,
        filesystem: Filesystem,
        clock: Clock,
        scheduler: Scheduler,
        random: Random,
        threads: Threads,
        *,
        index_cache_bytes: int = DEFAULT_CAPACITY_BYTES,
        open_file_count: int = DEFAULT_CAPACITY,
    ) -> LogEnvironment:
        """An environment with caches of its own, for tools and tests."""
        return cls(
            filesystem=filesystem,
            clock=clock,
            scheduler=scheduler,
            random=random,
            index_cache=IndexCache(threads.mutex(), index_cache_bytes),
            open_files=OpenFiles(threads.mutex(), open_file_count),
        )
