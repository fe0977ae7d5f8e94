"""The line that a start shows on a terminal: logs, bytes, rate, and how long it may still take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.manager.values import Loading
    from kafkalog.observe.terminal_line import TerminalLine

_PERIOD_SECONDS = 0.2
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


async def show_loading(line: TerminalLine, loading: Callable[[], Loading]) -> None:
    """Redraw until it is cancelled, then erase. A start of less than a period shows nothing."""
    try:
        while True:
            await asyncio.sleep(_PERIOD_SECONDS)
            line.show(loading_text(loading()))
    finally:
        line.show("")


def loading_text(loading: Loading) -> str:
    """One line without its end."""
    if not loading.partitions:
        return "Reading the log directories"
    text = f"Loading logs: {loading.partitions_loaded}/{loading.partitions}"
    if loading.bytes_to_recover or loading.bytes_recovered:
        per_second = loading.bytes_recovered * 1000 // max(1, loading.elapsed_ms)
        text += f", recovered {_size(loading.bytes_recovered)} at {_size(per_second)}/s"
    left_ms = remaining_ms(loading)
    return text if left_ms is None else f"{text}, about {_duration(left_ms)} left"


def remaining_ms(loading: Loading) -> int | None:
    """The longer of two guesses: logs at the pace of logs, bytes known of at the pace of bytes.

    None as long as there is no pace. Logs differ in size, so it is a guess.
    """
    guesses = [
        loading.elapsed_ms * left // done
        for done, left in (
            (loading.partitions_loaded, loading.partitions - loading.partitions_loaded),
            (loading.bytes_recovered, loading.bytes_to_recover),
        )
        if done
    ]
    return max(guesses, default=None)


def _size(size_bytes: int) -> str:
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _duration(duration_ms: int) -> str:
    seconds = -(-duration_ms // 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"
