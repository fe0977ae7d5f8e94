"""Goal: `kafkalog compat kafka-consumer-groups` prints what Kafka 4.1's tool printed for the same.
Method: lines of the real tool's run, kept here, at a running daemon; members, which Kafka has not.
tests/oracle/test_groups_against_kafka.py compares more of them live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import Daemon
from tests.integration.test_cli_compat import create, printed, tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOOL = "kafka-consumer-groups"
RESET = ("--reset-offsets", "--group", "billing")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """With records in a topic of one partition, and another one of three."""
    with Daemon(tmp_path) as served:
        create(served, "orders")
        create(served, "two.parts", "--partitions", "3")
        produced = tool(served, "kafka-console-producer", "--topic", "orders", stdin="a\nb\nc\n")
        assert produced.exit_code == 0
        yield served


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_group_from_its_first_offset_to_its_end(daemon: Daemon) -> None:
    """Padding and both streams are the tool's; partitions come sorted."""
    assert printed(tool(daemon, TOOL, "--list")) == ""
    reset = tool(daemon, TOOL, *RESET, "--topic", "orders", "--to-earliest", "--execute")
    blank, heading, row = printed(reset).splitlines()
    assert blank == ""
    assert heading == f"{'GROUP':31}{'TOPIC':31}{'PARTITION':11}{'NEW-OFFSET':15}"
    assert row == f"{'billing':31}{'orders':31}{'0':11}{'0':15}"
    every = tool(daemon, TOOL, *RESET, "--topic", "two.parts", "--to-latest", "--execute")
    assert [row[2] for row in cells(printed(every))[2:]] == ["0", "1", "2"]
    assert printed(tool(daemon, TOOL, "--list")) == "billing\n"
    assert printed(tool(daemon, TOOL, "--list", "--state")) == (
        "GROUP                     STATE               \n"
        "billing                   Empty               \n"
    )
    described = tool(daemon, TOOL, "--describe", "--group", "billing")
    heading, *rows = described.stdout.splitlines()[1:]
    assert heading == (
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG"
        "             CONSUMER-ID     HOST            CLIENT-ID"
    )
    assert [row.split()[1:6] for row in rows] == [
        ["orders", "0", "0", "3", "3"],
        ["two.parts", "0", "0", "0", "0"],
        ["two.parts", "1", "0", "0", "0"],
        ["two.parts", "2", "0", "0", "0"],
    ]
    assert described.stderr == "\nConsumer group 'billing' has no active members.\n"
    assert printed(tool(daemon, TOOL, "--delete", "--group", "billing")) == (
        "Deletion of requested consumer groups ('billing') was successful.\n"
    )


def test_refusals(daemon: Daemon) -> None:
    """What a broker refuses ends with status 0, what is no command with 1, as the tool's."""
    unknown = printed(tool(daemon, TOOL, "--describe", "--group", "nope"))
    assert unknown == (
        "\nError: Executing consumer group command failed due to"
        " org.apache.kafka.common.errors.GroupIdNotFoundException: Group nope not found.\n"
    )
    gone = printed(tool(daemon, TOOL, "--delete", "--group", "nope"))
    assert gone.startswith(
        "\nError: Deletion of some consumer groups failed:\n* Group 'nope' could"
    )
    shown = tool(daemon, TOOL, *RESET, "--topic", "two.parts:0,2", "--to-latest")
    assert [row[2] for row in cells(printed(shown))[2:]] == ["0", "2"]
    assert shown.stderr.startswith("WARN: No action will be performed")
    assert printed(tool(daemon, TOOL, "--list")) == "", "nothing was committed"
    for wrong in (
        ("--describe",),
        (*RESET, "--topic", "orders", "--execute"),
        (*RESET, "--to-latest", "--execute"),
        (*RESET, "--topic", "orders", "--to-latest", "--execute", "--dry-run"),
        ("--list", "--describe"),
        (),
    ):
        assert tool(daemon, TOOL, *wrong).exit_code == 1


def test_what_is_not_there_is_named(daemon: Daemon) -> None:
    wanted = ("--topic", "two.parts:0,7", "--to-earliest", "--execute")
    assert printed(tool(daemon, TOOL, *RESET, *wanted)) == (
        "\nError: Executing consumer group command failed due to"
        ' The partitions "two.parts-7" do not exist\n'
    )
    assert printed(tool(daemon, TOOL, "--list")) == "", "nothing was committed"
    for words in (
        ("--delete-offsets",), ("--export",), ("--to-current",),
        ("--from-file", "plan.csv"), ("--by-duration", "P1D"), ("--from-file", ""),
    ):  # fmt: skip
        refused = tool(daemon, TOOL, *RESET, *words)
        assert refused.exit_code == 1
        assert refused.stderr.endswith(
            f"{words[0]} does not exist here: docs/reference/kafka-tools.md\n"
        )
    for action in ("--describe", "--delete"):
        refused = tool(daemon, TOOL, action, "--group", "\udcff")
        assert refused.exit_code == 2
        assert "'\\udcff' is not a name: it is not UTF-8" in refused.stderr


def test_an_offset_that_no_log_has(daemon: Daemon) -> None:
    shown = tool(daemon, TOOL, *RESET, "--topic", "orders", "--to-offset", "99", "--dry-run")
    assert cells(printed(shown))[2][1:] == ["orders", "0", "3"]
    assert shown.stderr == (
        "WARN New offset (99) is higher than latest offset for topic partition orders-0. Value will"
        " be set to 3\n"
    )


def test_a_group_with_a_member_is_not_reset(daemon: Daemon) -> None:
    config = {"name": "reader", "format": "binary", "auto.offset.reset": "earliest"}
    assert daemon.request("POST", "/consumers/billing", config).status == 200
    path = "/consumers/billing/instances/reader/subscription"
    assert daemon.request("POST", path, {"topics": ["orders"]}).status == 204
    members = cells(printed(tool(daemon, TOOL, "--describe", "--group", "billing", "--members")))
    assert members[2][:2] == ["billing", "reader"]
    assert printed(tool(daemon, TOOL, *RESET, "--topic", "orders", "--to-latest", "--execute")) == (
        "\nError: Assignments can only be reset if the group 'billing' is inactive, but the current"
        " state is Stable.\n"
    )
