"""Logs of our making for retention: segments of random size and age, limits near them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.env.clock import FixedWallClock
from kafkalog.log.inspect.offline_log import tool_environment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log
from tests.log_world import flush
from tests.partition_world import batch, checked

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog

NOW = 1_700_000_000_000
UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True)
class Made:
    """A log: bases and bytes of its segments, ages of their newest records in units."""

    directory: Path
    bases: list[int]
    sizes: list[int]
    ages: list[int]
    end: int


def make_log(
    home: Path, chance: random.Random, *, now_ms: int = NOW, unit_ms: int = 1, step: int = 10_000
) -> Made:
    """One to nine segments, about ``step`` units apart.

    Some are without timestamps, so that their files' age counts; some are older than those before.
    """
    directory = home / "made-0"
    directory.mkdir(parents=True)
    environment = tool_environment(FixedWallClock(now_ms - 10**9))
    log = load_log(str(directory), LogConfig(segment_index_bytes=4096), environment, clean=True)
    ages: list[int] = []
    for number in range(chance.randint(1, 9)):
        if number:
            log.roll()
        shift = chance.choice((0, 0, 0, -7 * step // 2, 2 * step))
        age = max(0, (9 - number) * step + shift)
        is_stamped = chance.random() < 0.8
        for _ in range(chance.randint(1, 4)):
            stamp = now_ms - (age + chance.randrange(step // 3)) * unit_ms if is_stamped else -1
            _append(log, [b"x" * chance.randint(1, 300)] * chance.randint(1, 3), stamp, now_ms)
        if is_stamped:
            _append(log, [b"last"], now_ms - age * unit_ms, now_ms)
        ages.append(age)
    if chance.random() < 0.3:
        log.roll()
        ages.append(0)
    made = Made(
        directory,
        [segment.base_offset for segment in log.segments],
        [segment.size_bytes for segment in log.segments],
        ages,
        log.log_end_offset,
    )
    flush(log)
    log.close()
    for base, age in zip(made.bases, ages, strict=True):
        seconds = (now_ms - age * unit_ms) // 1000
        os.utime(directory / f"{base:020d}.log", (seconds, seconds))
    return made


def _append(log: UnifiedLog, values: list[bytes | None], stamp: int, now_ms: int) -> None:
    data = batch(values, timestamps=stamp)
    log.append(checked(data, now_ms=now_ms), synced=False)


def size_limit(made: Made, chance: random.Random) -> str:
    """retention.bytes: what the newest segments hold, also one above and one below."""
    first = chance.randrange(len(made.sizes))
    return str(max(0, sum(made.sizes[first:]) + chance.choice((-1, 0, 1, 100, -100))))
