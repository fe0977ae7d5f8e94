"""Goal: the rights on one's own topics are enough to work on them, and on no other.
Method: a principal with one rule, ``all topic mine-*``, at the command line and Kafka's tools.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.access_world import access_settings, ask
from tests.integration.daemon import Daemon
from tests.integration.http_world import refused
from tests.integration.principal_commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = "allow alice all topic mine-*\nallow admin all topic *\nallow admin all cluster\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("own")
    with Daemon(root, **access_settings(root, RULES)) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_my_topic_from_its_creation_to_its_deletion(guarded: Daemon, tmp_path: Path) -> None:
    """No right on the cluster is asked for where Kafka asks for none."""
    alice = Commands(guarded, tmp_path, "alice")
    assert alice.printed("topics", "create", "mine-1") == "Created topic mine-1.\n"
    described = json.loads(alice.printed("topics", "describe", "mine-1", "--output", "json"))
    assert "mine-1" in json.dumps(described)
    alice.printed("configs", "alter", "--topic", "mine-1", "--add-config", "retention.ms=1000")
    assert "retention.ms=1000" in alice.printed("configs", "describe", "--topic", "mine-1")
    assert alice.printed("offsets", "get", "mine-1") == "mine-1:0:0\n"
    where = ("--bootstrap-server", f"http://127.0.0.1:{guarded.port}")
    for tool in (
        ("kafka-topics", "--describe", "--topic", "mine-1"),
        ("kafka-configs", "--describe", "--topic", "mine-1"),
        ("kafka-get-offsets", "--topic", "mine-1"),
    ):
        assert "mine-1" in alice.printed("compat", *tool, *where)
    alice.printed("topics", "delete", "mine-1")
    assert "mine-1" not in alice.printed("topics", "list")


def test_topics_of_others(guarded: Daemon, tmp_path: Path) -> None:
    """What opens is the cluster's id, and nothing behind it."""
    alice = Commands(guarded, tmp_path, "alice")
    admin = Commands(guarded, tmp_path, "admin")
    admin.printed("topics", "create", "theirs")
    for arguments in (
        ("topics", "create", "theirs-2"),
        ("topics", "describe", "theirs"),
        ("configs", "alter", "--topic", "theirs", "--add-config", "retention.ms=1000"),
        ("configs", "describe", "--topic", "theirs"),
        ("offsets", "get", "theirs"),
        ("topics", "delete", "theirs"),
        ("configs", "describe", "--broker"),
    ):
        denied = alice.run(*arguments)
        assert denied.returncode != 0, arguments
        assert "Not authorized" in denied.stderr, arguments
    assert alice.printed("topics", "list") == ""
    assert admin.printed("topics", "list") == "theirs\n"
    cluster_id = ask(guarded, "alice", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
    for path in ("brokers", "brokers/0/configs", "broker-configs"):
        refused(ask(guarded, "alice", "GET", f"/v3/clusters/{cluster_id}/{path}"), 403, 40301)
    refused(ask(guarded, None, "GET", "/v3/clusters"), 401, 40101)
