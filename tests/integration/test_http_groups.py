"""Goal: operators see groups, their lags and members, and reset or delete what nobody reads.
Method: a live daemon and the native routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import TEXT, V2, Daemon
from tests.integration.http_world import delete_records, failed_entry, refused

if TYPE_CHECKING:
    from tests.integration.daemon import Answer

SETTINGS = {"offsets_topic_num_partitions": "3", "http_trusted_proxies": "127.0.0.0/8"}


@pytest.fixture(scope="module")
def topic(daemon: Daemon) -> str:
    """Two partitions with ten and five records, times 1000, 2000, ..., the first three deleted."""
    daemon.create_topic("t", 2)
    for partition, count in ((0, 10), (1, 5)):
        records = [{"value": "v", "timestamp": 1000 * (1 + number)} for number in range(count)]
        path = f"/topics/t/partitions/{partition}"
        answer = daemon.request("POST", path, {"records": records}, {"Content-Type": TEXT})
        assert answer.status == 200
    delete_records(daemon, ("t", 0, 3))
    return "t"


def put(daemon: Daemon, group: str, **offsets: int) -> Answer:
    """Commit p0=..., p1=... of t."""
    entries = [
        {"topic": "t", "partition": int(name[1:]), "offset": offset, "metadata": "m"}
        for name, offset in offsets.items()
    ]
    return daemon.request("PUT", f"/v1/groups/{group}/offsets", {"offsets": entries})


def offsets(daemon: Daemon, group: str) -> dict[int, int]:
    """By partition of t."""
    answer = daemon.request("GET", f"/v1/groups/{group}/offsets")
    assert answer.status == 200, answer.body
    return {each["partition"]: each["offset"] for each in answer.json["offsets"]}


def reset(daemon: Daemon, group: str, **body: object) -> list[Any]:
    answer = daemon.request("POST", f"/v1/groups/{group}/offsets:reset", body)
    assert answer.status == 200, answer.body
    entries: list[Any] = answer.json["offsets"]
    return entries


def member(daemon: Daemon, group: str, topic: str) -> str:
    config = {"name": "one", "auto.commit.enable": "false"}
    created = daemon.request("POST", f"/consumers/{group}", config, {"Content-Type": V2})
    assert created.status == 200
    path = f"/consumers/{group}/instances/one"
    answer = daemon.request("POST", f"{path}/subscription", {"topics": [topic]})
    assert answer.status == 204
    return path


def test_offsets_are_stored_as_sent(daemon: Daemon, topic: str) -> None:
    """N9. A client without an instance keeps its place with one PUT, no dialect in between."""
    assert put(daemon, "plain", p0=4, p1=5).status == 204
    answer = daemon.request("GET", "/v1/groups/plain/offsets").json
    first, second = answer["offsets"]
    assert first.pop("commit_timestamp") > 1_700_000_000_000
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 4,
        "leader_epoch": -1,
        "metadata": "m",
        "log_start_offset": 3,
        "log_end_offset": 10,
        "lag": 6,
    }
    assert second["lag"] == 0
    put(daemon, "plain", p0=9)
    assert offsets(daemon, "plain") == {0: 9, 1: 5}
    assert daemon.request("GET", "/v1/groups/nobody/offsets").json["offsets"] == []
    refused(put(daemon, "plain", p7=1), 404, 40402)
    refused(put(daemon, "plain", p0=-1), 422, 422)
    long = {"topic": topic, "partition": 0, "offset": 1, "metadata": "x" * 4097}
    answer = daemon.request("PUT", "/v1/groups/plain/offsets", {"offsets": [long]})
    refused(answer, 400, 40002)


def test_groups_are_listed_and_described(daemon: Daemon, topic: str) -> None:
    """A group shows its state, members and commits; one that is not there is 404/40405."""
    put(daemon, "quiet", p0=4)
    path = member(daemon, "busy", topic)
    states = {each["group"]: each for each in daemon.request("GET", "/v1/groups").json["groups"]}
    assert states["quiet"] == {"group": "quiet", "state": "Empty", "members": 0}
    assert states["busy"] == {"group": "busy", "state": "Stable", "members": 1}
    busy = daemon.request("GET", "/v1/groups/busy").json
    partitions = [{"topic": topic, "partition": number} for number in range(2)]
    one = {"instance_id": "one", "topics": [topic], "partitions": partitions}
    assert busy == {"group": "busy", "state": "Stable", "members": [one], "offsets": []}
    refused(daemon.request("GET", "/v1/groups/nobody"), 404, 40405)
    assert daemon.request("DELETE", path).status == 204
    refused(daemon.request("GET", "/v1/groups/busy"), 404, 40405)


def test_resets(daemon: Daemon, topic: str) -> None:
    """Earliest, latest, a time, a shift and an offset, each inside the log."""
    for body, expected in (
        ({"to": "earliest"}, {0: 3, 1: 0}),
        ({"to": "latest"}, {0: 10, 1: 5}),
        ({"to": "timestamp", "timestamp": 4500}, {0: 4, 1: 4}),
        ({"to": "timestamp", "timestamp": "1970-01-01T00:00:08Z"}, {0: 7, 1: 5}),
        ({"to": "shift", "shift": 1}, {0: 6, 1: 4}),
        ({"to": "shift", "shift": -9}, {0: 3, 1: 0}),
        ({"to": "offset", "offset": 100}, {0: 10, 1: 5}),
        ({"to": "offset", "offset": 0, "topics": [topic]}, {0: 3, 1: 0}),
        ({"to": "latest", "partitions": [{"topic": topic, "partition": 1}]}, {0: 5, 1: 5}),
    ):
        put(daemon, "reset", p0=5, p1=3)
        entries = reset(daemon, "reset", dry_run=True, **body)
        assert offsets(daemon, "reset") == {0: 5, 1: 3}
        assert reset(daemon, "reset", **body) == entries
        assert offsets(daemon, "reset") == expected, body
        named = {each["partition"]: each["new_offset"] for each in entries}
        assert named.items() <= expected.items()
    first = reset(daemon, "fresh", to="earliest", topics=[topic])[0]
    assert first == {"topic": topic, "partition": 0, "old_offset": None, "new_offset": 3}


def test_what_a_reset_refuses(daemon: Daemon, topic: str) -> None:
    path = "/v1/groups/unset/offsets:reset"
    for body, status, code in (
        ({"to": "shift"}, 422, 422),
        ({"to": "latest", "shift": 1}, 422, 422),
        ({"to": "sometime"}, 422, 422),
        ({"to": "timestamp", "timestamp": "soon", "topics": [topic]}, 400, 40005),
        ({"to": "latest"}, 404, 40405),
        ({"to": "latest", "topics": ["no-such"]}, 404, 40401),
        ({"to": "latest", "partitions": [{"topic": topic, "partition": 9}]}, 404, 40402),
    ):
        answer = daemon.request("POST", path, body)
        assert (answer.status, answer.json["error_code"]) == (status, code), body
    for entry in reset(daemon, "unset", to="shift", shift=1, topics=[topic]):
        failed_entry(entry, 40002)
    assert offsets(daemon, "unset") == {}


def test_a_group_with_members_is_not_changed_behind_their_backs(daemon: Daemon, topic: str) -> None:
    """409/40911 until the last member left; a dry run is always possible."""
    put(daemon, "owned", p0=5, p1=3)
    path = member(daemon, "owned", topic)
    base = "/v1/groups/owned"
    refused(daemon.request("POST", f"{base}/offsets:reset", {"to": "latest"}), 409, 40911)
    refused(daemon.request("DELETE", f"{base}/offsets"), 409, 40911)
    refused(daemon.request("DELETE", base), 409, 40911)
    assert len(reset(daemon, "owned", to="latest", dry_run=True)) == 2
    assert offsets(daemon, "owned") == {0: 5, 1: 3}
    daemon.request("DELETE", path)
    removed = daemon.request("DELETE", f"{base}/offsets?topics=no-such,x")
    assert removed.json == {"group": "owned", "removed": 0}
    assert daemon.request("DELETE", f"{base}/offsets?topics={topic}").json["removed"] == 2
    refused(daemon.request("DELETE", base), 404, 40405)
    put(daemon, "owned", p0=5)
    assert daemon.request("DELETE", base).status == 204
    assert offsets(daemon, "owned") == {}
