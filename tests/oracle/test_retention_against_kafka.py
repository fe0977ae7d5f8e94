"""Goal: at the same clock and with the same limits kafkalog and Kafka delete the same segments.

Method: logs with segments of random size and age, random watermarks, log starts and limits; Kafka's
own loader and retention pass run on a copy, ours on another, results and files are equal.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.load import LoadOptions
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.oracle.made_logs import NOW, UNLIMITED, make_log, size_limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka
    from tests.oracle.made_logs import Made

pytestmark = pytest.mark.oracle

LOGS, CASES = 20, 300


KINDS = ("time", "time", "size", "size", "start", "all", "none", "compact", "both policies")


def limits(made: Made, kind: str, chance: random.Random) -> dict[str, str]:
    """Limits near what the log holds: also exactly at it, one above and one below."""
    configs = dict(UNLIMITED)
    if kind in ("time", "all", "compact", "both policies"):
        age = chance.choice(made.ages) + chance.choice((-1, 0, 1, 1000, -1000))
        configs["retention.ms"] = str(max(0, age))
    if kind in ("size", "all", "compact", "both policies"):
        configs["retention.bytes"] = size_limit(made, chance)
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
