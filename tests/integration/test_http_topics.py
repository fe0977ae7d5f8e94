"""Goal: topics are made, shown and deleted over HTTP as docs/reference/http.md says, by v2, v3 and
admin alike.
Method: requests to a real daemon; the disk afterwards; every address in an answer of v3 is
followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from kafkalog.client import Client
from tests.integration.daemon import V2, Daemon
from tests.integration.http_world import append as append_batches, batch_of, check_sealed, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Answer


def v3(daemon: Daemon) -> str:
    """Path of the topics of the one cluster."""
    return f"{daemon.cluster()}/topics"


def test_admin_creates_a_topic_with_its_directories(daemon: Daemon) -> None:
    """M01 M02: 201 {}; a directory a partition with Kafka's files."""
    answer = daemon.request("POST", "/admin/topics", {"topic_name": "made", "partitions_count": 3})
    assert (answer.status, answer.json) == (201, {})
    check_sealed(answer)
    names = sorted(path.name for path in daemon.log_dirs[0].glob("made-?"))
    assert names == ["made-0", "made-1", "made-2"]
    files = {path.name for path in (daemon.log_dirs[0] / "made-0").iterdir()}
    assert {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "partition.metadata",
    } <= files


def test_replicas_are_assigned_to_the_one_broker(daemon: Daemon) -> None:
    """Confluent's two forms, as its description and as its code have them; no other broker."""
    topics = f"{daemon.cluster()}/topics"

    def create(name: str, assignments: object, **more: object) -> Answer:
        body = {"topic_name": name, "replicas_assignments": assignments, **more}
        return daemon.request("POST", topics, body)

    listed = [{"partition_id": number, "broker_ids": [1]} for number in (1, 0)]
    answer = create("listed", listed)
    assert (answer.status, answer.json["partitions_count"]) == (201, 2), answer.body
    answer = create("mapped", {"0": [1], "1": [1], "2": [1]}, partitions_count=3)
    assert (answer.status, answer.json["partitions_count"]) == (201, 3)
    assert create("none", [], partitions_count=2).json["partitions_count"] == 2
    wrong: tuple[object, ...] = (
        {"0": [1, 2]},
        {"0": [2]},
        {"0": []},
        {"0": [1, 1]},
        {"1": [1]},
        {"x": [1]},
        {"00": [1], "0": [1]},
        [{"partition_id": 0, "broker_ids": [1]}] * 2,
    )
    for assignments in wrong:
        refused(create("refused", assignments), 400, 40002)
    refused(create("refused", {"0": [1]}, partitions_count=2), 400, 40002)
    refused(create("refused", {"0": [1]}, replication_factor=2), 400, 40002)
    refused(create("refused", [[1]]), 400, 400)
    assert daemon.request("GET", f"{topics}/refused").status == 404


def test_an_existing_topic_is_refused(daemon: Daemon) -> None:
    daemon.create_topic("twice")
    refused(daemon.request("POST", "/admin/topics", {"topic_name": "twice"}), 409, 40904)
    refused(daemon.request("POST", v3(daemon), {"topic_name": "twice"}), 400, 40002)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"topic_name": 7},
        {"topic_name": "x", "partitions_count": "3"},
        {"topic_name": "x", "partition_count": 3},
        {"topic_name": "x", "configs": {"retention.ms": 5}},
        [],
        "x",
        {"topic_name": None},
    ],
    ids=str,
)
def test_the_wrong_shape_names_the_field(daemon: Daemon, wanted: object) -> None:
    """400 as in the Bridge and in v3; 422 for an unknown field, as in v3."""
    is_unknown = isinstance(wanted, dict) and "partition_count" in wanted
    for path in ("/admin/topics", v3(daemon)):
        status = 422 if is_unknown else 400
        body = refused(daemon.request("POST", path, wanted), status, status)
        assert body["validation_errors"]


def test_v2_metadata(daemon: Daemon) -> None:
    """M01: names, configs as strings, partitions with their one replica, offsets."""
    daemon.create_topic("shown", 2, retention_ms="1234")
    assert "shown" in daemon.request("GET", "/topics").json
    entry = {
        "partition": 1,
        "leader": 1,
        "replicas": [{"broker": 1, "leader": True, "in_sync": True}],
    }
    topic = daemon.request("GET", "/topics/shown")
    assert topic.headers["Content-Type"] == V2
    assert topic.json["name"] == "shown"
    assert topic.json["configs"]["retention.ms"] == "1234"
    assert topic.json["configs"]["cleanup.policy"] == "delete"
    assert all(isinstance(value, str) for value in topic.json["configs"].values())
    assert topic.json["partitions"][1] == entry
    assert daemon.request("GET", "/topics/shown/partitions").json[1] == entry
    assert daemon.request("GET", "/topics/shown/partitions/1").json == entry
    offsets = daemon.request("GET", "/topics/shown/partitions/1/offsets").json
    assert offsets == {"beginning_offset": 0, "end_offset": 0}
    assert daemon.request("GET", "/brokers").json == {"brokers": [1]}
    root = daemon.request("GET", "/").json
    assert root["name"] == "kafkalog"
    assert root["bridge_version"]


def test_unknown_topics_and_partitions(daemon: Daemon) -> None:
    daemon.create_topic("known")
    for path in ("", "/partitions", "/partitions/0", "/partitions/0/offsets"):
        refused(daemon.request("GET", f"/topics/nope{path}"), 404, 40401)
    for path in ("/topics/known/partitions/1", "/topics/known/partitions/1/offsets"):
        refused(daemon.request("GET", path), 404, 40402)
    refused(daemon.request("GET", "/topics/known/partitions/2147483647"), 404, 40402)
    for partition in ("-1", "x", "2147483648", "1e3", "0x0", "٣", "1.0", "9" * 400):
        refused(
            daemon.request("GET", f"/topics/known/partitions/{quote(partition, safe='')}"), 404, 404
        )


def test_v3_knows_only_its_own_cluster(daemon: Daemon) -> None:
    path = v3(daemon).removesuffix("/topics")
    assert daemon.request("GET", path).json["kind"] == "KafkaCluster"
    refused(daemon.request("GET", "/v3/clusters/elsewhere"), 404, 40403)
    refused(daemon.request("GET", "/v3/clusters/elsewhere/topics"), 404, 40403)
    refused(daemon.request("POST", "/v3/clusters/elsewhere/topics", {}), 404, 40403)


def test_methods_and_paths(daemon: Daemon) -> None:
    refused(daemon.request("GET", "/no/such/path"), 404, 404)
    refused(daemon.request("GET", "/topics//"), 404, 404)
    answer = daemon.request("DELETE", "/topics/x")
    refused(answer, 405, 405)
    assert answer.headers["Allow"] == "GET,HEAD,POST".replace(",", ", ")
    refused(daemon.request("PATCH", "/v3/clusters"), 405, 405)
    head = daemon.request("HEAD", "/topics")
    assert (head.status, head.body) == (200, b"")


def test_accept_is_negotiated(daemon: Daemon) -> None:
    for accept, got in (
        ("application/json", "application/json"),
        ("*/*", V2),
        ("text/html;q=0.9, application/vnd.kafka.v2+json;q=0.5", V2),
        ("application/vnd.kafka.v1+json, application/vnd.kafka+json; q=0.9", V2),
    ):
        answer = daemon.request("GET", "/topics", headers={"Accept": accept})
        assert answer.headers["Content-Type"].split(";")[0] == got
    refused(daemon.request("GET", "/topics", headers={"Accept": "text/html"}), 406, 406)
    refused(daemon.request("GET", "/topics", headers={"Accept": "*/*;q=0"}), 406, 406)


def test_request_ids(daemon: Daemon) -> None:
    """A harmless id of the client's is kept, another replaced; never twice the same."""
    mine = daemon.request("GET", "/topics", headers={"X-Request-Id": "abc-1.2:3_x"})
    assert mine.headers["X-Request-Id"] == "abc-1.2:3_x"
    hostile = daemon.request("GET", "/topics", headers={"X-Request-Id": "a b<script>"})
    other = daemon.request("GET", "/topics")
    assert "<" not in hostile.headers["X-Request-Id"]
    assert hostile.headers["X-Request-Id"] != other.headers["X-Request-Id"]


def follow(daemon: Daemon, url: str) -> Any:
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
    related = [
        each["related"] for each in entity.values() if isinstance(each, dict) and "related" in each
    ]
    return [entity["metadata"]["self"], *related]


@pytest.mark.parametrize("prefix", ["", "/kafka"])
def test_addresses_lead_somewhere(daemon: Daemon, prefix: str) -> None:
    """Every address from the cluster down is found, under both prefixes, and keeps its prefix."""
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
    path = f"{daemon.cluster()}/topics/when/partitions/0"

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


def test_internal_topics_are_listed_when_asked_for(daemon: Daemon) -> None:
    """As Kafka's AdminClient lists them, by which the proxies list; each is there by its name.

    A page leads to a page of the same list. The command line shows what it showed.
    """
    daemon.create_topic("ordinary")
    entry = {"topic": "ordinary", "partition": 0, "offset": 0}
    assert daemon.request("PUT", "/v1/groups/lister/offsets", {"offsets": [entry]}).status == 204
    offsets, asked = "__consumer_offsets", "include_internal=true"

    def of_v3(query: str = "") -> list[str]:
        return [
            each["topic_name"] for each in daemon.request("GET", v3(daemon) + query).json["data"]
        ]

    for query in ("", "?include_internal=false", "?other=1"):
        names = daemon.request("GET", f"/topics{query}").json
        assert "ordinary" in names
        assert not [name for name in names if name.startswith("__")]
        assert of_v3(query) == names
    everything = daemon.request("GET", f"/topics?{asked}").json
    assert {offsets, *names} <= set(everything)
    assert of_v3(f"?{asked}") == everything
    assert daemon.request("GET", f"/topics/{offsets}").json["name"] == offsets
    assert daemon.request("GET", f"{v3(daemon)}/{offsets}").json["is_internal"] is True

    walked, url = [], f"{v3(daemon)}?{asked}&page_size=1"
    while url:
        page = daemon.request("GET", url).json
        walked += [each["topic_name"] for each in page["data"]]
        url = (page["metadata"]["next"] or "").removeprefix(f"http://127.0.0.1:{daemon.port}")
    assert walked == everything
    for path in ("/topics", v3(daemon)):
        refused(daemon.request("GET", f"{path}?include_internal=yes"), 400, 40005)

    with Client(f"http://127.0.0.1:{daemon.port}") as client:
        assert client.list_topics() == everything
        assert [each["topic_name"] for each in client.describe_topics()] == everything


def test_pages(daemon: Daemon) -> None:
    """No entity is missed or told twice, whatever the size of a page.

    Topics, whose names sort by bytes; partitions beyond nine; the configs of all topics, where a
    name is the beginning of another. A page after a deleted entity is where it would be.
    """
    names = ["pg", "pg-a", "pg.a1", "pg0"]
    for name in names:
        daemon.create_topic(name, partitions=12 if name == "pg0" else 1)
    root = daemon.cluster()
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
    refused(daemon.request("GET", f"{daemon.cluster()}/topics?{query}"), 400, 40005)


def test_what_one_node_does_not_have(daemon: Daemon) -> None:
    """Kafka ACLs and reassignments are known, and not offered."""
    reassigned = [f"topics/{of}/reassignment" for of in ("-/partitions/-", "t/partitions/0")]
    asked = [("GET", "acls"), ("POST", "acls"), ("POST", "acls:batch"), ("DELETE", "acls")]
    for method, path in (*asked, *(("GET", path) for path in reassigned)):
        refused(daemon.request(method, f"{daemon.cluster()}/{path}"), 501, 501)
        refused(daemon.request(method, f"/v3/clusters/another/{path}"), 404, 40403)


@pytest.mark.parametrize(
    ("method", "path", "near"),
    [
        ("GET", "/v1/topics", "GET /topics"),
        ("GET", "/v2/topics/orders/", "GET /topics/{topic}"),
        ("GET", "/topic", "GET /topics"),
        ("GET", "/groups", "GET /v1/groups"),
        ("POST", "/v1/topics", "POST /admin/topics"),
        ("GET", "/v1/nothing/of/the/kind", None),
        ("GET", "/%2e%2e//", None),
    ],
)
def test_a_path_that_is_not_there_names_the_one_near_it(
    daemon: Daemon, method: str, path: str, near: str | None
) -> None:
    """Most try /v1/topics first: the topics are v2's, there is no second list."""
    answer = daemon.request(method, path)
    refused(answer, 404, 404)
    hint = "" if near is None else f" Did you mean {near}?"
    told = f"There is no such path.{hint} GET /openapi.json lists all paths."
    assert answer.json["message"] == told
