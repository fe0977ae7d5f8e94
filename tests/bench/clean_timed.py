"""Timed cleans: ``python -m tests.bench.clean_timed MAP_BYTES IO_BUFFER_BYTES``.

Each line of standard input names a partition directory; one Cleaner, kept from line to line as in
a cleaner thread of the daemon, cleans it in place. Answers with a line of JSON: seconds and counts
of the cleaner's own statistics. `CleanTimed.java` does the same with Kafka's classes. Loading and
closing the log are not in the seconds; the syncs of the cleaned segments are.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypeVar

from kafkalog import kernels
from kafkalog.cleaner.cleaner import Cleaner
from kafkalog.cleaner.config import CleanerConfig
from kafkalog.cleaner.plan import LogToClean
from kafkalog.cleaner.skimpy_offset_map import SkimpyOffsetMap
from kafkalog.env.clock import SystemClock
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def main() -> None:
    configure_logging(sys.stderr, log_format="json", level="warning")
    kernels.warm_up(None)
    map_bytes, io_buffer_bytes = map(int, sys.argv[1:])
    cleaner = Cleaner(
        SkimpyOffsetMap(map_bytes, load_factor=0.9),
        CleanerConfig(io_buffer_bytes=io_buffer_bytes),
        throttle=_nothing,
    )
    for line in sys.stdin:
        print(json.dumps(clean(cleaner, line.rstrip("\n"))), flush=True)


def clean(cleaner: Cleaner, directory: str) -> dict[str, float]:
    """One round over all closed segments of a log that was stopped cleanly."""
    clock = SystemClock()
    log = load_log(directory, LogConfig(), tool_environment(clock), clean=True)
    log.update_high_watermark(log.log_end_offset)
    now_ms = clock.wall_ms()
    to_clean = LogToClean.of(log, None, now_ms)
    stats = cleaner.clean(to_clean, now_ms, on_writer=_at_once, check_done=_never).stats
    log.close()
    return {
        "cleanable_bytes": to_clean.cleanable_bytes,
        "seconds": stats.seconds,
        "map_seconds": stats.map_seconds,
        "messages_read": stats.messages_read,
        "messages_written": stats.messages_written,
    }


def _at_once(call: Callable[[], T], /) -> T:
    """Nobody else works on this log."""
    return call()


def _nothing(_: int) -> None:
    """As fast as it goes."""


def _never() -> None:
    """Nobody asks to stop."""


if __name__ == "__main__":
    main()
