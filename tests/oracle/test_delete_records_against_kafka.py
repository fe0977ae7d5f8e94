"""Goal: kafka-delete-records and `kafkalog compat kafka-delete-records` cannot be told apart.
Method: the real tool at a running broker and our command at a running daemon, the same topics and
the same files: standard output, the message, exit status, log start offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import TEXT, Daemon
from tests.integration.test_cli_over_http import run_plain
from tests.oracle.kafka import record

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.oracle.kafka import Broker, Output

pytestmark = pytest.mark.oracle

POLICIES = {"good": "delete", "kept": "compact", "both": "compact,delete"}
RECORDS = 10


def file_of(*entries: tuple[str, int, int], rest: str = ',"version":1') -> str:
    """The tool's file."""
    shown = ",".join(
        f'{{"topic":"{topic}","partition":{number},"offset":{offset}}}'
        for topic, number, offset in entries
    )
    return f'{{"partitions":[{shown}]{rest}}}'


def with_value(name: str, value: str) -> str:
    """A file whose only entry has this value in a field."""
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
    """A broker with the same."""
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
