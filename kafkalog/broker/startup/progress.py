"""LoadProgress: how far the load of all log directories has come, as numbers and as log lines.

Told by recovery threads, read by any thread. Lines carry Kafka's sentences where it has them
(LogManager.loadLogs); between the first and the last at most one per directory and ten seconds.
Once loaded it counts on (topics are made, partitions loaded again) and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.values import Loading

if TYPE_CHECKING:
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Threads
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.observe.metrics import Metrics

_LINE_PERIOD_NS = 10_000_000_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _DirProgress:
    """One directory."""

    logs: int = 0
    done: int = 0
    segments_left: int = 0
    bytes_left: int = 0
    bytes_recovered: int = 0
    next_line_ns: int = 0


class LoadProgress:
    """See the module."""

    def __init__(self, clock: Clock, threads: Threads, metrics: Metrics) -> None:
        # constant after construction
        self._clock = clock
        self._metrics = metrics
        self._mutex = threads.mutex()
        # changed under the mutex
        self._dirs: dict[str, _DirProgress] = {}
        # set by the starting thread
        self._started_ns = 0
        self._is_over = False

    @property
    def loading(self) -> Loading:
        """Sums over all directories; zeros before the directories were read."""
        dirs = tuple(self._dirs.values())
        elapsed_ns = self._clock.monotonic_ns() - self._started_ns if dirs else 0
        return Loading(
            partitions=sum(each.logs for each in dirs),
            partitions_loaded=sum(each.done for each in dirs),
            segments_to_recover=sum(each.segments_left for each in dirs),
            bytes_to_recover=sum(each.bytes_left for each in dirs),
            bytes_recovered=sum(each.bytes_recovered for each in dirs),
            elapsed_ms=elapsed_ns // 1_000_000,
        )

    def remaining_in(self, path: str) -> tuple[int, int]:
        """(logs, segments) of a directory that its start has left to load and to recover."""
        one = self._dirs.get(path)
        return (0, 0) if one is None else (max(one.logs - one.done, 0), one.segments_left)

    def start_contradicted(self, path: str) -> None:
        """A directory's files say different things of a log's start. Any recovery thread."""
        self._metrics.log_start_contradictions.labels(path).inc()

    def begin(self, logs: dict[LogDir, int]) -> None:
        """Partitions to load per directory are known; a directory that was not clean is named."""
        self._started_ns = now_ns = self._clock.monotonic_ns()
        for log_dir, count in logs.items():
            path = log_dir.path
            with self._mutex:
                one = self._of(path)
                one.logs, one.next_line_ns = count, now_ns + _LINE_PERIOD_NS
            self._metrics.recovery_remaining_logs.labels(path).set(count)
            if log_dir.was_clean:
                _log.info(
                    f"Skipping recovery of {count} logs from {path} since clean shutdown file was "
                    "found",
                    log_dir=path,
                )
            elif not log_dir.is_fresh:
                _log.warning(
                    f"Recovering {count} logs from {path} since no clean shutdown file was found",
                    log_dir=path,
                )

    def log_done(self, log_dir: LogDir, log: UnifiedLog | None, started_ns: int) -> None:
        """A partition was loaded, or put out of service (None)."""
        path, now_ns = log_dir.path, self._clock.monotonic_ns()
        with self._mutex:
            one = self._of(path)
            one.done += 1
            done, count, has_line = one.done, one.logs, self._takes_line(one, now_ns)
        self._metrics.recovery_remaining_logs.labels(path).dec()
        if has_line and log is not None:
            _log.info(
                f"Completed load of {log.topic_partition} with {len(log.segments)} segments, "
                f"local-log-start-offset {log.log_start_offset} and log-end-offset "
                f"{log.log_end_offset} in {(now_ns - started_ns) // 1_000_000}ms "
                f"({done}/{count} completed in {path})",
                log_dir=path,
            )

    def recovery_changed(self, path: str, segments: int, size_bytes: int) -> None:
        """So many more or, negative, fewer segments and bytes of the directory wait for it."""
        now_ns = self._clock.monotonic_ns()
        with self._mutex:
            one = self._of(path)
            one.segments_left += segments
            one.bytes_left += size_bytes
            one.bytes_recovered += max(0, -size_bytes)
            done, count, left = one.done, one.logs, one.segments_left
            has_line = not self._is_over and self._takes_line(one, now_ns)
        self._metrics.recovery_remaining_segments.labels(path).inc(segments)
        self._metrics.recovered_bytes.labels(path).inc(max(0, -size_bytes))
        if has_line:
            _log.info(
                f"Recovering unflushed segments. {left} left "
                f"({done}/{count} logs completed in {path})",
                log_dir=path,
            )

    def end(self) -> None:
        """Every directory's threads have ended."""
        self._is_over = True
        took_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        loading = self.loading
        if loading.partitions_loaded == loading.partitions:
            _log.info(f"Loaded {loading.partitions} logs in {took_ms}ms")

    def _of(self, path: str) -> _DirProgress:
        return self._dirs.setdefault(path, _DirProgress())

    @staticmethod
    def _takes_line(one: _DirProgress, now_ns: int) -> bool:
        """Whether a line is due now; it is taken."""
        if now_ns < one.next_line_ns:
            return False
        one.next_line_ns = now_ns + _LINE_PERIOD_NS
        return True
