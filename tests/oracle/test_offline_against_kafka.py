"""Goal: a directory means to kafkalog what it means to Kafka, whatever happened to it.

Method: a real broker's directories, also damaged, are loaded by both; results and files are equal.
"""

from __future__ import annotations

import random
import shutil
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.cli.offline.scan import scan_lines
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.log.inspect.directory_check import verify_directory
from tests.oracle import damage
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.oracle.real_directories import TIME, TOPICS, TRIMMED_TO

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.oracle.damage import Damage
    from tests.oracle.kafka import Kafka
    from tests.oracle.real_directories import RealDirectories

pytestmark = pytest.mark.oracle

STATES = ("killed", "stopped")
EVERYWHERE = tuple((state, topic) for state in STATES for topic in TOPICS)
NOW = TIME + 2_000_000  # before the producers of the fixed timestamps expire
LATER = TIME + 1_000_000_000_000  # everybody has expired
CRASHED = LoadOptions(now_ms=NOW)
CLEAN = LoadOptions(now_ms=NOW, clean=True)
DENSE = {"index.interval.bytes": "300"}


# After a clean stop Kafka believes index files, whatever is in them, where we find the entries
# again; and it does not start, or appends behind the damage, where we recover the last segment.
UNLIKE_KAFKA_WHEN_CLEAN = frozenset(
    {
        damage.garbled_indexes,
        damage.torn_tail,
        damage.torn_in_last_batch,
        damage.empty_last,
        damage.zeroed_tail,
        damage.zeros_behind,
        damage.noise_behind,
    }
)

# A damaged .swap without its original is refused here, where Kafka cuts it.
ALONE = (damage.half_renamed_swap, damage.nothing_left)
CAN_BE_COMBINED = [each for each in damage.ALL if each not in ALONE]


class Question(NamedTuple):
    """One load: of which directory, after what, and how."""

    name: str
    state: str
    topic: str
    damage: Damage | None
    options: LoadOptions
    configs: dict[str, str]


def plain_questions() -> list[Question]:
    """Directories as they are, with every option."""
    variants: dict[str, tuple[LoadOptions, dict[str, str]]] = {
        "crashed": (CRASHED, DENSE),
        "crashed, default cadence": (CRASHED, {}),
        "crashed, everybody expired": (LoadOptions(now_ms=LATER), DENSE),
        "recovery point inside": (LoadOptions(now_ms=NOW, recovery_point=140), DENSE),
        "recovery point beyond": (LoadOptions(now_ms=NOW, recovery_point=10**6), DENSE),
        "log start inside": (LoadOptions(now_ms=NOW, log_start=61), DENSE),
        "log start in a later segment": (LoadOptions(now_ms=NOW, log_start=180), DENSE),
        "log start beyond the end": (LoadOptions(now_ms=NOW, log_start=10**6), DENSE),
        "high watermark inside": (LoadOptions(now_ms=NOW, high_watermark=120), DENSE),
        "roll": (LoadOptions(now_ms=NOW, roll=True), DENSE),
        "delete records": (LoadOptions(now_ms=NOW, delete_records=130), DENSE),
        "delete all, roll": (LoadOptions(now_ms=NOW, delete_records=140, roll=True), DENSE),
        "small segments": (CRASHED, {**DENSE, "internal.segment.bytes": "2000"}),
    }
    questions = [
        Question(f"{state}/{topic}: {name}", state, topic, None, options, configs)
        for state, topic in EVERYWHERE
        for name, (options, configs) in variants.items()
    ]
    questions += [
        Question(f"stopped/{topic}: {name}", "stopped", topic, None, options, {})
        for topic in TOPICS
        for name, options in {
            "clean": CLEAN,
            "clean, expired": LoadOptions(now_ms=LATER, clean=True),
            "clean, log start inside": LoadOptions(now_ms=NOW, clean=True, log_start=61),
            "clean, roll": LoadOptions(now_ms=NOW, clean=True, roll=True),
            "clean, log start beyond": LoadOptions(now_ms=NOW, clean=True, log_start=10**6),
        }.items()
    ]
    return questions


def damaged_questions() -> list[Question]:
    """Every damage after a crash; those that a clean start meets too, after a clean stop."""
    questions = []
    for each in damage.ALL:
        name = damage.name_of(each)
        for state, topic in (("killed", "plain"), ("killed", "txn"), ("stopped", "compacted")):
            questions.append(
                Question(f"{state}/{topic}: {name}", state, topic, each, CRASHED, DENSE)
            )
        if each not in UNLIKE_KAFKA_WHEN_CLEAN:
            title = f"clean stopped/txn: {name}"
            questions.append(Question(title, "stopped", "txn", each, CLEAN, DENSE))
    return questions


def random_questions(count: int) -> list[Question]:
    questions = []
    for seed in range(count):
        chance = random.Random(seed)
        state, topic = chance.choice(EVERYWHERE)
        options = LoadOptions(
            now_ms=chance.choice((NOW, LATER)),
            recovery_point=chance.choice((0, 0, chance.randrange(300))),
            log_start=chance.choice((0, 0, chance.randrange(300))),
            roll=chance.random() < 0.3,
        )
        configs = {"index.interval.bytes": str(chance.choice((0, 300, 1000, 4096)))}
        several = chance.sample(CAN_BE_COMBINED, 2)
        title = (
            f"random {seed}: {state}/{topic}: {', '.join(damage.name_of(each) for each in several)}"
        )

        def both(directory: Path, chance: random.Random, several: list[Damage] = several) -> None:
            for each in several:
                # The first may have left nothing for the second.
                with suppress(IndexError, ValueError, FileNotFoundError):
                    each(directory, chance)

        questions.append(Question(title, state, topic, both, options, configs))
    return questions


QUESTIONS = {
    question.name: question
    for question in (*plain_questions(), *damaged_questions(), *random_questions(60))
}


@pytest.fixture(scope="module")
def answers(
    kafka: Kafka, real_directories: RealDirectories, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[LoadCase, Any]]:
    home = tmp_path_factory.mktemp("loads")
    cases = [
        make_case(question, real_directories, home / str(number))
        for number, question in enumerate(QUESTIONS.values())
    ]
    results = load_with_kafka(kafka, home, cases)
    return dict(zip(QUESTIONS, zip(cases, results, strict=True), strict=True))


def make_case(question: Question, directories: RealDirectories, home: Path) -> LoadCase:
    source = directories.partition(question.state, question.topic)
    if question.damage is not None:
        copy = home / "source" / source.name
        shutil.copytree(source, copy)
        seed = zlib.crc32(question.name.encode())
        question.damage(copy, random.Random(seed))
        source = copy
    return LoadCase(source, home, question.options, question.configs)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_load_gives_what_kafka_gives(answers: dict[str, tuple[LoadCase, Any]], name: str) -> None:
    """M02 M04 M05 M14 M22 M25: offsets, recovery point, segments, and every byte of every file."""
    case, kafkas = answers[name]
    ours = case.load()
    if "error" in kafkas or "error" in ours:
        assert ("error" in kafkas) == ("error" in ours), f"Kafka: {kafkas}\nkafkalog: {ours}"
        return
    assert comparable(ours) == comparable(kafkas)
    assert differing_files(case.kafkas, case.ours) == []


@pytest.mark.parametrize("each", sorted(UNLIKE_KAFKA_WHEN_CLEAN, key=damage.name_of))
def test_a_damaged_clean_directory_is_sound_after_a_load(
    real_directories: RealDirectories, tmp_path: Path, each: Damage
) -> None:
    """M14: where Kafka does not start or goes on behind the damage."""
    question = Question(damage.name_of(each), "stopped", "txn", each, CLEAN, DENSE)
    case = make_case(question, real_directories, tmp_path)
    result = case.load()
    assert "error" not in result
    # Indexes of closed segments are left to the next recovery; zeros may lie in a payload alone.
    if each not in (damage.garbled_indexes, damage.zeroed_tail):
        assert verify_directory(str(case.ours), SystemFilesystem()) == []


def test_an_index_smaller_than_its_entries_stays_sparse(
    real_directories: RealDirectories, tmp_path: Path
) -> None:
    """M04: Kafka does not start when segment.index.bytes was lowered."""
    configs = {**DENSE, "segment.index.bytes": "48"}
    question = Question("", "killed", "txn", None, CRASHED, configs)
    result = make_case(question, real_directories, tmp_path).load()
    assert max(each["indexEntries"] for each in result["loaded"]["segments"]) == 6


def scanned(directory: Path, from_offset: int = 0, *, committed: bool = False) -> list[str]:
    lines = scan_lines(SystemFilesystem(), str(directory), from_offset, committed=committed)
    return [line.removesuffix("\n") for line in lines]


@pytest.mark.parametrize("topic", TOPICS)
def test_scan_prints_what_kafkas_consumer_prints(
    real_directories: RealDirectories, topic: str
) -> None:
    """M02: every byte of every line, of both directories, also read_committed."""
    start = TRIMMED_TO if topic == "trimmed" else 0
    for state in STATES:
        directory = real_directories.partition(state, topic)
        assert scanned(directory, start) == real_directories.consumed[topic]
        if topic in real_directories.committed:
            expected = real_directories.committed[topic]
            assert scanned(directory, committed=True) == expected
            assert expected != real_directories.consumed[topic] or topic == "compacted"


def test_scan_prints_what_the_kits_scan_prints(
    kafka: Kafka, real_directories: RealDirectories
) -> None:
    """M02: also from an offset inside a batch."""
    directory = real_directories.partition("killed", "plain")
    assert scanned(directory, 111) == kafka.scan(directory, 111)


@pytest.mark.parametrize("state", STATES)
def test_kafkas_directories_are_sound(real_directories: RealDirectories, state: str) -> None:
    """M02 M04 M05: the format check has nothing against what a broker writes."""
    for topic in TOPICS:
        directory = real_directories.partition(state, topic)
        assert verify_directory(str(directory), SystemFilesystem()) == []
