"""Goal: at the same clock and with the same limits kafkalog and Kafka delete the same segments.

Method: logs with segments of random size and age, random watermarks, log starts and limits; Kafka's
own loader and retention pass run on a copy, ours on another, results and files are equal.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline_load import FixedWallClock, LoadOptions
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.log_loader import load_log
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.partition_world import batch, checked

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.unified_log import UnifiedLog
    from tests.oracle.kafka import Kafka

pytestmark = pytest.mark.oracle

NOW = 1_700_000_000_000
LOGS, CASES = 20, 300
UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True)
class Made:
    """A log of our making: bases and bytes of its segments, ages of their newest records."""

    directory: Path
    bases: list[int]
    sizes: list[int]
    ages_ms: list[int]
    end: int


def make_log(home: Path, chance: random.Random) -> Made:
    """One to nine segments; some without timestamps, so that their files' age counts."""
    directory = home / "made-0"
    directory.mkdir(parents=True)
    threads = SystemThreads(_never)
    clock = FixedWallClock(NOW - 10**9)
    environment = LogEnvironment.create(
        SystemFilesystem(),
        clock,
        SystemScheduler(clock, threads, 1, _never),
        SystemRandom(),
        threads,
    )
    log = load_log(str(directory), LogConfig(segment_index_bytes=4096), environment, clean=True)
    ages: list[int] = []
    for number in range(chance.randint(1, 9)):
        if number:
            log.roll()
        age = max(0, 90_000 - 10_000 * number + chance.choice((0, 0, 0, -35_000, 20_000)))
        is_stamped = chance.random() < 0.8
        for _ in range(chance.randint(1, 4)):
            stamp = NOW - age - chance.randrange(3_000) if is_stamped else -1
            _append(log, [b"x" * chance.randint(1, 300)] * chance.randint(1, 3), stamp)
        if is_stamped:
            _append(log, [b"last"], NOW - age)
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
    plan = log.plan_flush()
    if plan is not None:
        plan.run()
        log.mark_flushed(plan)
    log.close()
    for base, age in zip(made.bases, ages, strict=True):
        seconds = (NOW - age) // 1000
        os.utime(directory / f"{base:020d}.log", (seconds, seconds))
    return made


def _append(log: UnifiedLog, values: list[bytes | None], stamp: int) -> None:
    data = batch(values, timestamps=stamp)
    log.append(checked(data, now_ms=NOW), synced=False)


def _never(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


KINDS = ("time", "time", "size", "size", "start", "all", "none", "compact", "both policies")


def limits(made: Made, kind: str, chance: random.Random) -> dict[str, str]:
    """Limits near what the log holds: also exactly at it, one above and one below."""
    configs = dict(UNLIMITED)
    if kind in ("time", "all", "compact", "both policies"):
        age = chance.choice(made.ages_ms) + chance.choice((-1, 0, 1, 1000, -1000))
        configs["retention.ms"] = str(max(0, age))
    if kind in ("size", "all", "compact", "both policies"):
        first = chance.randrange(len(made.sizes))
        size = sum(made.sizes[first:]) + chance.choice((-1, 0, 1, 100, -100))
        configs["retention.bytes"] = str(max(0, size))
    if kind == "compact":
        configs["cleanup.policy"] = "compact"
    if kind == "both policies":
        configs["cleanup.policy"] = "compact,delete"
    return configs


def make_case(made: Made, home: Path, chance: random.Random) -> LoadCase:
    """One question about one of the logs."""
    kind = chance.choice(KINDS)
    is_alone = kind in ("time", "size")  # that rule and no other
    start = None
    if not is_alone and chance.random() < 0.5:
        start = min(made.end, chance.choice(made.bases) + chance.choice((-1, 0, 1, 2)))
    middle = min(made.end, made.bases[len(made.bases) // 2] + 1)
    options = LoadOptions(
        now_ms=NOW,
        clean=chance.random() < 0.5,
        log_start=0 if is_alone else chance.choice((0, 0, middle)),
        high_watermark=chance.choice((None, None, chance.randint(0, made.end))),
        delete_records=None if start is None or start < 0 else start,
        roll=chance.random() < 0.2,
        retention=True,
    )
    watermark = options.high_watermark
    if watermark is not None and (options.delete_records or 0) > watermark:
        options = replace(options, delete_records=watermark)
    return LoadCase(made.directory, home, options, limits(made, kind, chance))


@pytest.fixture(scope="module")
def answers(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[LoadCase, Any]]:
    """Every question with Kafka's answer."""
    home = tmp_path_factory.mktemp("retention")
    made = [make_log(home / f"log{n}", random.Random(n)) for n in range(LOGS)]
    cases = [
        make_case(made[number % LOGS], home / f"case{number}", random.Random(number))
        for number in range(CASES)
    ]
    return list(zip(cases, load_with_kafka(kafka, home, cases), strict=True))


@pytest.mark.parametrize("number", range(CASES))
def test_a_pass_deletes_what_kafka_deletes(
    answers: list[tuple[LoadCase, Any]], number: int
) -> None:
    """M09 M10: count, log start, segments that stay, and every byte of every file."""
    case, kafkas = answers[number]
    assert "error" not in kafkas, kafkas
    assert comparable(case.load()) == comparable(kafkas), case.configs
    assert differing_files(case.kafkas, case.ours) == []


def test_the_cases_are_worth_it(
    answers: list[tuple[LoadCase, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """M09: by Kafka's answers a third deletes, a third keeps something with one rule at work."""
    seen: Counter[str] = Counter()
    for case, kafkas in answers:
        deletes = "delete" in case.configs.get("cleanup.policy", "delete")
        rules = [
            case.options.delete_records is not None or case.options.log_start > 0,
            deletes and case.configs["retention.bytes"] != "-1",
            deletes and case.configs["retention.ms"] != "-1",
        ]
        seen["deleted something"] += kafkas["deletedSegments"] > 0
        seen["deleted everything"] += kafkas["after"]["size"] == 0 < kafkas["loaded"]["size"]
        if sum(rules) == 1 and kafkas["after"]["size"] > 0:
            seen["kept something by one rule"] += 1
            seen[f"kept by {('start offset', 'size', 'time')[rules.index(True)]} alone"] += 1
    with capsys.disabled():
        print(f"\nretention, {len(answers)} cases: {dict(seen)}")
    assert seen["deleted something"] >= CASES // 3
    assert seen["kept something by one rule"] >= CASES // 3
    assert all(seen[f"kept by {rule} alone"] for rule in ("start offset", "size", "time"))
