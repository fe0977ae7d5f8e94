"""Goal: at the same clock, limits and orders kafkalog and Kafka delete the same segments and
records, and say so alike.
Method: made logs in one JVM, a running broker beside a daemon; outputs compared.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.format.disk.checkpoints import encode_offsets
from kafkalog.format.disk.file_names import (
    CLEAN_SHUTDOWN,
    LOG_PROOFS,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
)
from kafkalog.format.topic_names import TopicPartition
from tests.integration.daemon import TEXT, Daemon
from tests.integration.test_cli_over_http import run_plain
from tests.oracle.kafka import record
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.oracle.made_logs import NOW, UNLIMITED, Made, make_log, size_limit

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.oracle.kafka import Broker, Kafka, Output


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


HOUR = 3_600_000
BROKER_KINDS = ("time", "size", "start", "mixed")
TOPICS, PARTITIONS = 8, 4
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Planted:
    """One partition with the log start it is given."""

    topic_partition: TopicPartition
    made: Made
    start: int

    @property
    def segments(self) -> list[tuple[int, int]]:
        """(base offset, bytes)."""
        return list(zip(self.made.bases, self.made.sizes, strict=True))


def configs_of(kind: str, made: Made, chance: random.Random) -> dict[str, str]:
    """Limits of a topic, taken from one of its logs; ages lie hours from every limit."""
    configs = dict(UNLIMITED)
    if kind in ("time", "mixed"):
        configs["retention.ms"] = str((chance.choice(made.ages) + 5) * HOUR)
    if kind in ("size", "mixed"):
        configs["retention.bytes"] = size_limit(made, chance)
    return configs


def plant(log_dir: Path, planted: list[Planted], copy: Callable[[Planted, Path], None]) -> None:
    """Under a stopped server: the files, and all log starts; what ours proved is of other files."""
    (log_dir / LOG_PROOFS).unlink(missing_ok=True)
    for each in planted:
        copy(each, log_dir / f"{each.topic_partition.topic}-{each.topic_partition.partition}")
    starts = {each.topic_partition: each.start for each in planted if each.start}
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(encode_offsets(starts))
    (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)


def copy_segments(each: Planted, target: Path) -> None:
    """All but the topic's identity, with their modification times."""
    for path in list(target.iterdir()):
        if path.name != PARTITION_METADATA:
            path.unlink()
    for path in each.made.directory.iterdir():
        if path.suffix == ".log":  # as after a crash: indexes are built anew
            shutil.copy2(path, target / path.name)


def segments(log_dir: Path, each: Planted) -> list[tuple[int, int]]:
    """(base offset, bytes) of what is left; nothing while it changes under our eyes."""
    home = log_dir / f"{each.topic_partition.topic}-{each.topic_partition.partition}"
    try:
        return sorted((int(path.stem), path.stat().st_size) for path in home.glob("*.log"))
    except FileNotFoundError:
        return []


def settled(log_dir: Path, planted: list[Planted]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """What is left once the checks have begun to delete and nothing has changed for some."""
    planted_files = {each.topic_partition: each.segments for each in planted}
    deadline, seen, since = time.monotonic() + WAIT_SECONDS, planted_files, time.monotonic()
    while time.monotonic() < deadline:
        now = {each.topic_partition: segments(log_dir, each) for each in planted}
        if now != seen:
            seen, since = now, time.monotonic()
        elif now != planted_files and time.monotonic() - since > 7:
            return now
        time.sleep(0.3)
    raise AssertionError("it never settled")


@pytest.mark.timeout(400)
def test_a_broker_and_a_daemon_keep_the_same(
    new_broker: Callable[..., Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """M09 M10: 32 logs by time, size, start offset and all three; segments and log starts."""
    chance, now_ms = random.Random(4), int(time.time() * 1000)
    topics: dict[str, dict[str, str]] = {}
    planted: list[Planted] = []
    for number in range(TOPICS):
        kind = BROKER_KINDS[number % len(BROKER_KINDS)]
        name = f"{kind}{number}"
        for partition in range(PARTITIONS):
            made = make_log(
                tmp_path / f"{name}-{partition}", chance, now_ms=now_ms, unit_ms=HOUR, step=24
            )
            start = 0
            if kind in ("start", "mixed"):
                start = min(made.end, chance.choice(made.bases) + chance.choice((0, 1, 2)))
            planted.append(Planted(TopicPartition(name, partition), made, start))
        topics[name] = configs_of(kind, planted[-1].made, chance)

    broker = new_broker("log.initial.task.delay.ms=500")
    for name, configs in topics.items():
        broker.create_topic(
            name, PARTITIONS, **{k.replace(".", "_"): v for k, v in configs.items()}
        )
    broker.stop()
    plant(broker.data, planted, copy_segments)
    broker.start()
    kafkas = settled(broker.data, planted)
    broker.stop()

    with Daemon(
        tmp_path / "ours", log_initial_task_delay_ms="500", log_retention_check_interval_ms="1000"
    ) as daemon:
        for name, configs in topics.items():
            daemon.create_topic(name, PARTITIONS, **configs)
        daemon.stop()
        plant(daemon.log_dirs[0], planted, copy_segments)
        daemon.start()
        ours = settled(daemon.log_dirs[0], planted)
        starts = {
            each.topic_partition: daemon.request(
                "GET",
                f"/topics/{each.topic_partition.topic}/partitions/"
                f"{each.topic_partition.partition}/offsets",
            ).json["beginning_offset"]
            for each in planted
        }
    before = {each.topic_partition: each.segments for each in planted}
    deleting = sum(ours[key] != before[key] for key in before)
    keeping = sum(bool(ours[key]) and ours[key][-1][1] > 0 for key in before)
    with capsys.disabled():
        print(
            f"\nrunning broker, {len(planted)} logs: {deleting} lost segments, {keeping} kept some"
        )
    assert ours == kafkas
    for each in planted:
        first = kafkas[each.topic_partition][0][0]
        assert starts[each.topic_partition] == max(each.start, first), each
    assert deleting >= len(planted) // 3
    assert keeping >= len(planted) // 3


POLICIES = {"good": "delete", "kept": "compact", "both": "compact,delete"}
RECORDS = 10


def file_of(*entries: tuple[str, int, int], rest: str = ',"version":1') -> str:
    shown = ",".join(
        f'{{"topic":"{topic}","partition":{number},"offset":{offset}}}'
        for topic, number, offset in entries
    )
    return f'{{"partitions":[{shown}]{rest}}}'


def with_value(name: str, value: str) -> str:
    texts = {"topic": '"good"', "partition": "0", "offset": "1", name: value}
    fields = ",".join(f'"{key}":{text}' for key, text in texts.items())
    return f'{{"partitions":[{{{fields}}}]}}'


# In this order, as each moves log starts.
DONE = (
    file_of(("good", 0, 3)),
    file_of(("good", 0, 2), ("good", 1, 0), rest=""),
    file_of(("good", 0, 99), ("both", 0, 4), ("kept", 0, 1)),
    file_of(("good", 0, -2), ("both", 0, -9)),
    file_of(("__consumer_offsets", 0, 0), ("both", 0, 5)),
    '{"partitions":[{"topic":"good","partition":0,"offset":4,"x":1}],"version":1,"y":[]} tail',
    file_of(("good", 0, -1)),
    '{"partitions":[]}',
)
REFUSED = (
    "",
    "{",
    "[]",
    '"x"',
    '{"version":1}',
    '{"partitions":{},"version":1}',
    '{"partitions":null,"version":null}',
    '{"partitions":[],"version":1,"version":2}',
    '{"partitions":[5],"version":1}',
    '{"partitions":[{"topic":"good","partition":0}]}',
    '{"partitions":[{"partition":0,"offset":1}]}',
    '{"partitions":[{"topic":"t","partition":[1, {"a":2}],"offset":1}]}',
    file_of(("good", 0, 1), rest=',"version":"1"'),
    file_of(("good", 0, 1), ("good", 0, 1), ("good", 0, 1)),
    with_value("topic", "5"),
    with_value("partition", '"0"'),
    with_value("partition", "2147483648"),
    with_value("offset", "1.0"),
    with_value("offset", "true"),
    with_value("offset", "null"),
    with_value("offset", "9223372036854775808"),
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """With ten records in partition 0 of each topic."""
    with Daemon(tmp_path / "daemon") as served:
        for name, policy in POLICIES.items():
            served.create_topic(name, 2, cleanup_policy=policy)
            body = {"records": [{"key": "k", "value": "v", "partition": 0}] * RECORDS}
            answer = served.request("POST", f"/topics/{name}", body, {"Content-Type": TEXT})
            assert answer.status == 200
        yield served


@pytest.fixture
def filled(new_broker: Callable[..., Broker]) -> Broker:
    broker = new_broker()
    for name, policy in POLICIES.items():
        broker.create_topic(name, 2, cleanup_policy=policy)
        broker.produce(name, [record(b"k", b"v")] * RECORDS)
    broker.create_topic("__consumer_offsets")
    return broker


def theirs(broker: Broker, file: Path) -> Output:
    base = ("delete-records", "--bootstrap-server", broker.bootstrap)
    return broker.kafka.run(*base, "--offset-json-file", file, check=False)


def ours(daemon: Daemon, file: Path) -> subprocess.CompletedProcess[bytes]:
    where = f"http://127.0.0.1:{daemon.port}"
    base = ("compat", "kafka-delete-records", "--bootstrap-server", where)
    return run_plain(*base, "--offset-json-file", str(file))


def in_order(lines: list[str]) -> list[str]:
    """Two lines of text, then partitions, which Kafka prints in the order of a hash table."""
    return lines[:2] + sorted(lines[2:])


def test_the_same_lines(filled: Broker, daemon: Daemon, tmp_path: Path) -> None:
    """M10: what was deleted and what was not, to the byte; exit 0 although a partition failed."""
    for number, text in enumerate(DONE):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        expected, got = theirs(filled, file), ours(daemon, file)
        assert (expected.status, got.returncode) == (0, 0), got.stderr
        printed = got.stdout.decode().splitlines()
        assert in_order(printed) == in_order(expected.lines()), text
        assert got.stderr == b""


def test_the_same_refusals(broker: Broker, daemon: Daemon, tmp_path: Path) -> None:
    """M10: a file that is refused whole: nothing printed, the tool's message, exit 1."""
    for number, text in enumerate(REFUSED):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        expected, got = theirs(broker, file), ours(daemon, file)
        assert (expected.status, got.returncode) == (1, 1), text
        assert (expected.stdout, got.stdout) == ("", b"")
        assert got.stderr.decode().splitlines() == expected.stderr.splitlines()[:1], text
