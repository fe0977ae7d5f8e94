"""Goal: the v3 entities, their pages and their addresses are those that v3 clients follow.
Method: requests to a real daemon; every address in an answer is followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.http_world import append as append_batches
from tests.integration.http_world import batch_of, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Daemon


def cluster(daemon: Daemon, prefix: str = "") -> str:
    """Path of the one cluster."""
    (entity,) = daemon.request("GET", f"{prefix}/v3/clusters").json["data"]
    return f"{prefix}/v3/clusters/{entity['cluster_id']}"


def follow(daemon: Daemon, url: str) -> Any:
    """What an address of an answer leads to."""
    origin = f"http://127.0.0.1:{daemon.port}"
    assert url.startswith(origin)
    answer = daemon.request("GET", url.removeprefix(origin))
    assert answer.status == 200, (url, answer.body)
    return answer.json


def pages(daemon: Daemon, path: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """Pages from the first to the one without a next."""
    answer = daemon.request("GET", f"{path}?page_size={size}").json
    while True:
        yield answer["data"]
        following = answer["metadata"]["next"]
        if following is None:
            return
        answer = follow(daemon, following)


def addresses(entity: dict[str, Any]) -> list[str]:
    """Of an entity and its relations."""
    related = [
        each["related"] for each in entity.values() if isinstance(each, dict) and "related" in each
    ]
    return [entity["metadata"]["self"], *related]


@pytest.mark.parametrize("prefix", ["", "/kafka"])
def test_addresses_lead_somewhere(daemon: Daemon, prefix: str) -> None:
    """A client that knows only the root finds everything.

    Every address from the cluster down, under both prefixes; those of another node's business are
    501, and none changes its prefix.
    """
    if "walked" not in daemon.request("GET", "/topics").json:
        daemon.create_topic("walked", partitions=2)
    known, pending = set[str](), [f"http://127.0.0.1:{daemon.port}{prefix}/v3/clusters"]
    not_here = ("/acls", "/reassignment", "/consumer-groups")
    while pending:
        url = pending.pop()
        if url in known or url.endswith(not_here) or "/configs" in url or "/broker-configs" in url:
            continue
        known.add(url)
        assert url.removeprefix(f"http://127.0.0.1:{daemon.port}").startswith(f"{prefix}/v3/")
        answer = follow(daemon, url)
        for entity in answer.get("data", [answer]):
            pending += addresses(entity)
    assert any(url.endswith("/topics/walked/partitions/1/replicas/1") for url in known)


def test_offsets_of_every_type(daemon: Daemon) -> None:
    """earliest_and_latest is the proxies'; the other types are ours."""
    daemon.create_topic("when", cleanup_policy="delete")
    for timestamp_ms in (1000, 3000, 2000):
        append_batches(daemon, "when", batch_of(b"x", timestamp_ms=timestamp_ms))
    path = f"{cluster(daemon)}/topics/when/partitions/0"

    def offsets(query: str) -> dict[str, Any]:
        answer = daemon.request("GET", f"{path}/offset{query}")
        assert answer.status == 200, answer.body
        names = ("earliest_offset", "latest_offset", "max_timestamp_offset", "offset", "timestamp")
        return {name: answer.json[name] for name in names if name in answer.json}

    both = {"earliest_offset": 0, "latest_offset": 3}
    assert offsets("") == both
    assert offsets("?offset_type=earliest_and_latest") == both
    assert offsets("?offset_type=earliest") == {"earliest_offset": 0}
    assert offsets("?offset_type=latest") == {"latest_offset": 3}
    largest = {"max_timestamp_offset": 1, "timestamp": 3000}
    assert offsets("?offset_type=max_timestamp") == largest
    assert offsets("?offset_type=timestamp&timestamp=1500") == {"offset": 1, "timestamp": 3000}
    iso = "?offset_type=timestamp&timestamp=1970-01-01T00:00:01Z"
    assert offsets(iso) == {"offset": 0, "timestamp": 1000}
    nothing = {"offset": -1, "timestamp": -1}
    assert offsets("?offset_type=timestamp&timestamp=9000") == nothing
    refused(daemon.request("GET", f"{path}/offset?offset_type=timestamp"), 400, 40005)
    refused(daemon.request("GET", f"{path}/offset?offset_type=newest"), 400, 40005)

    deleted = daemon.request("POST", f"{path}/records:delete", {"offset": 2})
    assert (deleted.status, deleted.json["low_watermark"]) == (200, 2)
    assert offsets("")["earliest_offset"] == 2
    refused(daemon.request("POST", f"{path}/records:delete", {"offset": 4}), 416, 41602)
    assert (
        daemon.request("POST", f"{path}/records:delete", {"offset": -1}).json["low_watermark"] == 3
    )
    unknown = path.replace("/partitions/0", "/partitions/7")
    refused(daemon.request("POST", f"{unknown}/records:delete", {"offset": 0}), 404, 40403)


def test_pages(daemon: Daemon) -> None:
    """No entity is missed or told twice, whatever the size of a page.

    Topics, whose names sort by bytes; partitions beyond nine; the configs of all topics, where a
    name is the beginning of another. A page after a deleted entity is where it would be.
    """
    names = ["pg", "pg-a", "pg.a1", "pg0"]
    for name in names:
        daemon.create_topic(name, partitions=12 if name == "pg0" else 1)
    root = cluster(daemon)
    everything = [
        each["topic_name"] for each in daemon.request("GET", f"{root}/topics").json["data"]
    ]
    for size in (1, 2, 3, 1000):
        walked = list(pages(daemon, f"{root}/topics", size))
        assert all(len(page) == size for page in walked[:-1])
        assert [each["topic_name"] for page in walked for each in page] == everything
    numbers = [
        each["partition_id"]
        for page in pages(daemon, f"{root}/topics/pg0/partitions", 5)
        for each in page
    ]
    assert numbers == list(range(12))
    of_all = daemon.request("GET", f"{root}/brokers/-/configs").json
    assert of_all["data"] == daemon.request("GET", f"{root}/brokers/1/configs").json["data"]
    for path in ("topics/pg/configs", "broker-configs", "brokers/1/configs", "topics/-/configs"):
        whole = daemon.request("GET", f"{root}/{path}").json
        assert whole["metadata"]["next"] is None
        assert [e for page in pages(daemon, f"{root}/{path}", 17) for e in page] == whole["data"]
    first = daemon.request("GET", f"{root}/topics?page_size={everything.index('pg-a') + 1}").json
    assert daemon.request("DELETE", f"{root}/topics/pg-a").status == 204
    following = follow(daemon, first["metadata"]["next"])["data"]
    assert following[0]["topic_name"] == "pg.a1"


@pytest.mark.parametrize("query", ["page_size=0", "page_size=x", "page_token=zz", "page_token=abc"])
def test_wrong_pages(daemon: Daemon, query: str) -> None:
    """A token is one of ours, a size is a number."""
    refused(daemon.request("GET", f"{cluster(daemon)}/topics?{query}"), 400, 40005)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "acls"),
        ("POST", "acls"),
        ("POST", "acls:batch"),
        ("DELETE", "acls"),
        ("GET", "topics/-/partitions/-/reassignment"),
        ("GET", "topics/t/partitions/-/reassignment"),
        ("GET", "topics/t/partitions/0/reassignment"),
    ],
)
def test_what_one_node_does_not_have(daemon: Daemon, method: str, path: str) -> None:
    """Kafka ACLs and reassignments are known, and not offered."""
    refused(daemon.request(method, f"{cluster(daemon)}/{path}"), 501, 501)
    refused(daemon.request(method, f"/v3/clusters/another/{path}"), 404, 40403)
