"""Goal: kafka-consumer-groups.sh and ours cannot be told apart by what they print.
Method: the real tool at a running broker and ours at a daemon, the same commands in the same order,
as in test_tools_against_kafka.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.test_cli_compat import tool
from tests.oracle.test_tools_against_kafka import equalled, without_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.oracle.kafka import Broker

pytestmark = pytest.mark.oracle

CLASS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LONG = "a-group-whose-name-is-longer-than-any-column-of-the-tool"
NOW, ONLY = "--execute", "--dry-run"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as served:
        yield served


def test_groups_without_members(new_broker: Callable[..., Broker], daemon: Daemon) -> None:
    """Goal: every action on committed offsets prints Kafka's lines with its status.

    Method: topics with records on both sides, groups that only resets have made; then refusals.
    """
    broker = new_broker()
    where = ("--bootstrap-server", broker.bootstrap)

    def kafkas(java_class: str, *options: str, stdin: str = "") -> None:
        broker.kafka.run("java", java_class, *options, *where, stdin=stdin)

    def same(*options: str, is_error: bool = False) -> str:
        expected = broker.kafka.run("java", CLASS, *options, *where, check=False)
        got = tool(daemon, "kafka-consumer-groups", *options)
        shown = (options, expected.stdout, got.stdout, expected.stderr[:1500], got.stderr)
        mine, real = (without_order(equalled(text)) for text in (got.stdout, expected.stdout))
        assert mine == real, shown
        assert got.exit_code == expected.status, shown
        if is_error:
            mine, real = (text.strip().splitlines()[:1] for text in (got.stderr, expected.stderr))
            assert mine == real, shown
        return got.stdout

    for name, count in (("orders", 1), ("two.parts", 3), ("a-topic-with-a-rather-long-name", 12)):
        options = ("--create", "--topic", name, "--partitions", str(count))
        kafkas("org.apache.kafka.tools.TopicCommand", *options)
        assert tool(daemon, "kafka-topics", *options).exit_code == 0
    produce = ("--topic", "orders")
    kafkas("org.apache.kafka.tools.ConsoleProducer", *produce, stdin="a\nb\nc\n")
    assert tool(daemon, "kafka-console-producer", *produce, stdin="a\nb\nc\n").exit_code == 0
    reset = ("--reset-offsets", "--group")
    assert same("--list") == ""
    same(*reset, "billing", "--topic", "orders", "--to-earliest", NOW)
    same(*reset, "billing", "--topic", "two.parts", "--to-latest", NOW)
    same(*reset, LONG, "--topic", "orders", "--topic", "a-topic-with-a-rather-long-name",
         "--to-latest", NOW)  # fmt: skip
    same(*reset, "third", "--all-topics", "--to-latest", NOW)
    same(*reset, "third", "--topic", "two.parts:0,2", "--to-offset", "0", NOW)
    same(*reset, "third", "--topic", "orders:0", "--to-offset", "9", ONLY)
    same(*reset, "billing", "--topic", "orders", "--shift-by", "2", ONLY, is_error=True)
    same(*reset, "billing", "--all-topics", "--shift-by", "2", NOW)
    same(*reset, "billing", "--topic", "orders", "--to-datetime", "2020-01-01T00:00:00.000", ONLY)
    same(*reset, "billing", "--group", "third", "--all-topics", "--to-earliest", is_error=True)
    assert same("--list").split() != []
    same("--list", "--state")
    same("--describe", "--group", "billing", is_error=True)
    same("--describe", "--group", "billing", "--offsets", "--verbose")
    same("--describe", "--group", "billing", "--members", is_error=True)
    same("--describe", "--group", "billing", "--state", is_error=True)
    same("--describe", "--all-groups", is_error=True)
    same("--describe", "--all-groups", "--state")
    same("--describe", "--group", "nope")
    same("--describe", is_error=True)
    same("--delete", is_error=True)
    same("--reset-offsets", "--to-latest", "--topic", "orders", is_error=True)
    same(*reset, "billing", "--topic", "orders", NOW, is_error=True)
    same(*reset, "billing", "--to-latest", NOW, is_error=True)
    same(*reset, "billing", "--topic", "orders", "--to-latest", NOW, ONLY, is_error=True)
    same("--delete", "--group", "nope")
    same("--delete", "--group", "billing", "--group", "third")
    same("--delete", "--group", "billing", "--group", LONG)
    assert same("--list") == ""
