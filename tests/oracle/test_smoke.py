"""Goal: Kafka's classes agree with what this tree writes and does, in a minute, without a broker.

Method: one JVM for all; a part of the cases of the other files of this folder: dump, load, clean,
retention, and a directory of Kafka's making that is adopted, written to and handed back.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.dump import DumpOptions, dump
from kafkalog.cli.offline.load import LoadOptions
from kafkalog.format.records.record_batch import Codec
from tests.oracle import (
    test_cleaner_against_kafka as cleaner,
    test_crossing as crossing,
    test_retention_against_kafka as retention,
)
from tests.oracle.cleans import make_case
from tests.oracle.kafka import files_in
from tests.oracle.loads import LoadCase, comparable, differing_files
from tests.oracle.made_logs import make_log
from tests.oracle.one_jvm import DUMP, OneJvm, one_jvm
from tests.oracle.test_crossing import written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.kafka import Kafka

pytestmark = [pytest.mark.oracle, pytest.mark.gate]

__all__ = ["written"]  # a fixture
LOGS, RETENTION_CASES = 5, 60
CLEANER_SEEDS = range(40)
SETS = {"internal.segment.bytes": "6000", "index.interval.bytes": "300"}


@pytest.fixture(scope="module")
def jvm(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneJvm]:
    with one_jvm(kafka, tmp_path_factory.mktemp("jvm")) as jvm:
        yield jvm


def check_loads(jvm: OneJvm, cases: list[LoadCase]) -> list[Any]:
    """Both load: results and files are the same; Kafka's results."""
    theirs = jvm.answers("LoadMany", [case.question() for case in cases])
    for case, kafkas in zip(cases, theirs, strict=True):
        assert "error" not in kafkas, kafkas
        assert comparable(case.load()) == comparable(kafkas), case
        assert differing_files(case.kafkas, case.ours) == [], case
    return theirs


def test_load(jvm: OneJvm, written: Path, tmp_path: Path) -> None:
    """M02 M04 M05 M14 M25: what we wrote, after a clean stop and after a crash."""
    cases = [
        LoadCase(
            written, tmp_path / str(clean), LoadOptions(clean=clean, now_ms=crossing.TIME), SETS
        )
        for clean in (True, False)
    ]
    for kafkas in check_loads(jvm, cases):
        assert len(kafkas["loaded"]["segments"]) > 5


@pytest.mark.parametrize("flags", [{"deep_iteration": True}, {"print_data_log": True}])
def test_dump(jvm: OneJvm, written: Path, flags: dict[str, bool]) -> None:
    """M07: logs, indexes and snapshots that we wrote, to the byte."""
    files = files_in(written)
    options = [f"--{name.replace('_', '-')}" for name in flags]
    theirs = jvm.run(DUMP, "--files", files, *options)
    ours, findings = io.StringIO(), io.StringIO()
    dump(files.split(","), DumpOptions(**flags), ours, findings)
    assert (ours.getvalue(), findings.getvalue()) == (theirs.stdout, theirs.stderr)
    assert len(theirs.lines()) > 200


def test_retention(jvm: OneJvm, tmp_path: Path) -> None:
    """M09 M10: by time, size and log start; the same segments go."""
    made = [make_log(tmp_path / f"log{n}", random.Random(n)) for n in range(LOGS)]
    cases = [
        retention.make_case(made[n % LOGS], tmp_path / f"case{n}", random.Random(n))
        for n in range(RETENTION_CASES)
    ]
    theirs = check_loads(jvm, cases)
    deleting = sum(kafkas.get("deletedSegments", 0) > 0 for kafkas in theirs)
    assert deleting >= RETENTION_CASES // 3


@pytest.fixture(scope="module")
def cleaned(jvm: OneJvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cleaner.Answers]:
    place = cleaner.RAM_DISK if cleaner.RAM_DISK.is_dir() else tmp_path_factory.mktemp("cleans")
    with TemporaryDirectory(prefix="kafkalog-cleans-", dir=place) as home:
        cases = [make_case(seed, Path(home) / str(seed)) for seed in CLEANER_SEEDS]
        results = jvm.answers("CompactMany", [case.question() for case in cases])
        kafkas = {case.seed: result for case, result in zip(cases, results, strict=True)}
        yield cleaner.Answers({case.seed: case for case in cases}, kafkas, Counter())


def test_clean(cleaned: cleaner.Answers) -> None:
    """M17 M19 M20 M21 M22: offsets, figures, files, modification times."""
    cleaner.check_cleans(cleaned, CLEANER_SEEDS)


def test_adopt_and_hand_back(jvm: OneJvm, cleaned: cleaner.Answers, tmp_path: Path) -> None:
    """M25: a directory that Kafka cleaned is opened, written to, closed; Kafka opens it again."""
    cases = []
    for seed, kafkas in cleaned.kafkas.items():
        if any("error" in each for each in kafkas):
            continue
        directory = cleaned.cases[seed].copy_of("kafka", len(kafkas))
        log = crossing.open_log(directory, clean=False)
        first = log.log_end_offset
        batch = crossing.some_batch(random.Random(seed), Codec.NONE, (-1, -1, -1), txn=False)
        crossing.append(log, batch)
        assert log.log_end_offset > first
        crossing.close(log)
        options = LoadOptions(clean=True, now_ms=crossing.TIME)
        cases.append(LoadCase(directory, tmp_path / str(seed), options, SETS))
        if len(cases) == 10:
            break
    check_loads(jvm, cases)
