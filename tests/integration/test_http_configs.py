"""Goal: configs of topics and broker change over HTTP at once and for good; topics grow.
Method: requests to a real daemon, v3 shapes; restarts, also after losing a directory's registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import Daemon
from tests.integration.http_world import check_sealed, refused

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {"log_retention_hours": "24", "log_segment_bytes": "2097152"}


def cluster(daemon: Daemon) -> str:
    """Path of the one cluster."""
    (only,) = daemon.request("GET", "/v3/clusters").json["data"]
    return f"/v3/clusters/{only['cluster_id']}"


def configs(daemon: Daemon, topic: str) -> str:
    return f"{cluster(daemon)}/topics/{topic}/configs"


def overrides(daemon: Daemon, topic: str) -> Any:
    return daemon.request("GET", f"{cluster(daemon)}/topics/{topic}").json["config_overrides"]


def done(answer: Any) -> None:
    assert (answer.status, answer.body) == (204, b""), answer.body
    check_sealed(answer)


def test_a_topics_configs_are_listed_with_their_sources(daemon: Daemon) -> None:
    """M13: Kafka's chain, in the shape of the v3 API."""
    daemon.create_topic("listed", 1, cleanup_policy="compact,delete")
    listed = daemon.request("GET", configs(daemon, "listed")).json
    assert listed["kind"] == "KafkaTopicConfigList"
    assert listed["metadata"]["next"] is None
    entries = {entry["name"]: entry for entry in listed["data"]}
    entry = entries["cleanup.policy"]
    base = f"http://127.0.0.1:{daemon.port}{configs(daemon, 'listed')}"
    cluster_id = cluster(daemon).rpartition("/")[2]
    assert entry == {
        "kind": "KafkaTopicConfig",
        "metadata": {
            "self": f"{base}/cleanup.policy",
            "resource_name": f"crn:///kafka={cluster_id}/topic=listed/config=cleanup.policy",
        },
        "cluster_id": cluster_id,
        "topic_name": "listed",
        "name": "cleanup.policy",
        "value": "compact,delete",
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "source": "DYNAMIC_TOPIC_CONFIG",
        "synonyms": [
            {
                "name": "cleanup.policy",
                "value": "compact,delete",
                "source": "DYNAMIC_TOPIC_CONFIG",
            },
            {"name": "log.cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"},
        ],
    }
    assert entries["segment.bytes"]["source"] == "STATIC_BROKER_CONFIG"
    assert entries["retention.ms"]["value"] == "86400000"
    assert entries["flush.messages"]["is_default"] is True
    one = daemon.request("GET", f"{configs(daemon, 'listed')}/cleanup.policy")
    assert one.json == entry


def test_put_and_delete_of_one_config(daemon: Daemon) -> None:
    """M13: in force for the next append."""
    daemon.create_topic("one", 2)
    path = f"{configs(daemon, 'one')}/max.message.bytes"
    done(daemon.request("PUT", path, {"value": "10"}))
    assert daemon.request("GET", path).json["value"] == "10"
    body = {"records": [{"value": "x", "partition": 1}]}
    assert daemon.request("POST", "/topics/one", body).status == 413
    done(daemon.request("DELETE", path))
    done(daemon.request("DELETE", path))
    assert daemon.request("GET", path).json["is_default"] is True
    assert daemon.request("POST", "/topics/one", body).status == 200


def test_alter_sets_and_deletes_all_or_nothing(daemon: Daemon) -> None:
    """M13: one step that is refused refuses the others; a dry run changes nothing."""
    daemon.create_topic("several", 1, flush_ms="9")
    alter = f"{configs(daemon, 'several')}:alter"
    steps = [
        {"name": "retention.ms", "value": "5"},
        {"name": "retention.bytes", "value": "7", "operation": "SET"},
        {"name": "flush.ms", "operation": "DELETE"},
    ]
    done(daemon.request("POST", alter, {"data": steps, "validate_only": True}))
    assert overrides(daemon, "several") == {"flush.ms": "9"}
    for wrong in (
        {"name": "segment.bytes", "value": "13"},
        {"name": "no.such", "value": "13"},
        {"name": "no.such", "operation": "DELETE"},
        {"name": "flush.messages", "value": None},
        {"name": "retention.ms", "value": "6"},
    ):
        refused(daemon.request("POST", alter, {"data": [*steps, wrong]}), 400, 40002)
    assert overrides(daemon, "several") == {"flush.ms": "9"}
    done(daemon.request("POST", alter, {"data": steps}))
    assert overrides(daemon, "several") == {"retention.ms": "5", "retention.bytes": "7"}
    shapes: list[dict[str, object]] = [
        {},
        {"data": {}},
        {"data": [{"name": "x", "value": 5}]},
        {"data": [{"value": ""}]},
    ]
    for shape in shapes:
        refused(daemon.request("POST", alter, shape), 422, 422)
    wrong_operation = {"data": [{"name": "flush.ms", "value": "1", "operation": "APPEND"}]}
    refused(daemon.request("POST", alter, wrong_operation), 422, 422)


def test_the_configs_of_all_topics(daemon: Daemon) -> None:
    """M13: in the order of the topics, each as its own list has it."""
    daemon.create_topic("all-b", 1, flush_ms="9")
    daemon.create_topic("all-a")
    listed = daemon.request("GET", configs(daemon, "-")).json
    assert listed["kind"] == "KafkaTopicConfigList"
    for name in ("all-a", "all-b"):
        own = [entry for entry in listed["data"] if entry["topic_name"] == name]
        assert own == daemon.request("GET", configs(daemon, name)).json["data"]
    names = [entry["topic_name"] for entry in listed["data"]]
    assert names == sorted(names)


def test_the_broker_and_the_clusters_configs(daemon: Daemon) -> None:
    """M13: those that change at run time, the same values under both paths."""
    base = cluster(daemon)
    entity = daemon.request("GET", base).json
    origin = f"http://127.0.0.1:{daemon.port}{base}"
    for relation, path in (("brokers", "/brokers"), ("broker_configs", "/broker-configs")):
        assert entity[relation] == {"related": f"{origin}{path}"}
    (broker,) = daemon.request("GET", f"{base}/brokers").json["data"]
    assert daemon.request("GET", f"{base}/brokers/1").json == broker
    assert (broker["broker_id"], broker["host"], broker["port"]) == (1, "127.0.0.1", daemon.port)
    assert broker["configs"] == {"related": f"{origin}/brokers/1/configs"}
    refused(daemon.request("GET", f"{base}/brokers/2"), 404, 404)
    path = f"{base}/broker-configs"
    of_broker = daemon.request("GET", f"{base}/brokers/1/configs").json["data"]
    listed = daemon.request("GET", path).json
    assert listed["kind"] == "KafkaClusterConfigList"
    assert [entry["name"] for entry in listed["data"]] == [
        entry["name"] for entry in of_broker if not entry["is_read_only"]
    ]
    name = "log.retention.bytes"
    done(daemon.request("PUT", f"{path}/{name}", {"value": "5"}))
    shown = daemon.request("GET", f"{path}/{name}").json
    assert shown["metadata"]["self"] == f"{origin}/broker-configs/{name}"
    assert shown["metadata"]["resource_name"].endswith(f"/broker-config={name}")
    assert (shown["config_type"], shown["value"]) == ("BROKER", "5")
    assert "broker_id" not in shown
    assert daemon.request("GET", f"{base}/brokers/1/configs/{name}").json["value"] == "5"
    step = {"name": name, "operation": "DELETE"}
    done(daemon.request("POST", f"{path}:alter", {"data": [step], "validate_only": True}))
    assert daemon.request("GET", f"{path}/{name}").json["value"] == "5"
    done(daemon.request("POST", f"{path}:alter", {"data": [step]}))
    done(daemon.request("DELETE", f"{path}/{name}"))
    assert daemon.request("GET", f"{path}/{name}").json["is_default"] is True
    for wrong in ("log.dirs", "no.such"):
        refused(daemon.request("PUT", f"{path}/{wrong}", {"value": "5"}), 404, 404)
    refused(daemon.request("PUT", f"{path}/{name}", {"value": "x"}), 400, 40002)


def test_what_is_not_there(daemon: Daemon) -> None:
    daemon.create_topic("there")
    for name in ("retention.byte", "internal.segment.bytes", "..%2f..", "%00"):
        path = f"{configs(daemon, 'there')}/{name}"
        refused(daemon.request("GET", path), 404, 404)
        refused(daemon.request("PUT", path, {"value": "5"}), 404, 404)
        refused(daemon.request("DELETE", path), 404, 404)
    missing = configs(daemon, "nope")
    refused(daemon.request("GET", missing), 404, 40403)
    refused(daemon.request("PUT", f"{missing}/flush.ms", {"value": "5"}), 404, 40403)
    refused(daemon.request("DELETE", f"{missing}/flush.ms"), 404, 40403)
    refused(daemon.request("POST", f"{missing}:alter", {"data": []}), 404, 40403)
    refused(
        daemon.request("PATCH", missing.removesuffix("/configs"), {"partitions_count": 2}),
        404,
        40403,
    )
    refused(daemon.request("GET", "/v3/clusters/elsewhere/topics/there/configs"), 404, 40403)
    refused(daemon.request("GET", f"{cluster(daemon)}/brokers/7/configs"), 404, 404)
    path = f"{configs(daemon, 'there')}/flush.ms"
    refused(daemon.request("PUT", path, {"value": None}), 400, 40002)
    refused(daemon.request("PUT", path, {"value": "x"}), 400, 40002)
    refused(daemon.request("PUT", path, {"value": 5}), 422, 422)


def test_broker_configs(daemon: Daemon) -> None:
    """M13: dynamic over the file, the topic over both; what needs a restart is refused."""
    daemon.create_topic("default")
    daemon.create_topic("own", 1, max_message_bytes="2000000")
    brokers = f"{cluster(daemon)}/brokers/1/configs"
    entries = {entry["name"]: entry for entry in daemon.request("GET", brokers).json["data"]}
    assert entries["log.segment.bytes"]["source"] == "STATIC_BROKER_CONFIG"
    assert entries["log.segment.bytes"]["broker_id"] == 1
    assert entries["http.port"]["is_read_only"] is True
    done(daemon.request("PUT", f"{brokers}/message.max.bytes", {"value": "10"}))
    body = {"records": [{"value": "x"}]}
    assert daemon.request("POST", "/topics/default", body).status == 413
    assert daemon.request("POST", "/topics/own", body).status == 200
    shown = daemon.request("GET", f"{configs(daemon, 'default')}/max.message.bytes").json
    assert (shown["value"], shown["source"]) == ("10", "DYNAMIC_BROKER_CONFIG")
    refused(daemon.request("PUT", f"{brokers}/http.port", {"value": "1"}), 400, 40002)
    refused(daemon.request("PUT", f"{brokers}/log.retention.hours", {"value": "1"}), 400, 40002)
    refused(daemon.request("DELETE", f"{brokers}/log.retention.hours"), 400, 40002)
    refused(daemon.request("PUT", f"{brokers}/log.retention.ms", {"value": "0"}), 400, 40002)
    refused(daemon.request("GET", f"{brokers}/no.such"), 404, 404)
    steps = [{"name": "message.max.bytes", "operation": "DELETE"}]
    done(daemon.request("POST", f"{brokers}:alter", {"data": steps}))
    assert daemon.request("POST", "/topics/default", body).status == 200


def test_a_topic_grows_and_never_shrinks(daemon: Daemon) -> None:
    """M14: new directories, old records kept; Kafka's words."""
    daemon.create_topic("grown")
    daemon.produce_text("grown", "kept")
    path = f"{cluster(daemon)}/topics/grown"
    answer = daemon.request("PATCH", path, {"partitions_count": 3})
    assert (answer.status, answer.json["partitions_count"]) == (200, 3)
    assert sorted(each.name for each in daemon.log_dirs[0].glob("grown-*")) == [
        "grown-0",
        "grown-1",
        "grown-2",
    ]
    body = refused(daemon.request("PATCH", path, {"partitions_count": 3}), 400, 40002)
    assert body["message"] == "Topic already has 3 partition(s)."
    assert body["kafka_error"] == "INVALID_PARTITIONS"
    body = refused(daemon.request("PATCH", path, {"partitions_count": 1}), 400, 40002)
    assert (
        body["message"]
        == "The topic grown currently has 3 partition(s); 1 would not be an increase."
    )
    refused(daemon.request("PATCH", path, {"partitions_count": 10_001}), 400, 40002)
    refused(daemon.request("PATCH", path, {"partitions_count": "4"}), 422, 422)
    refused(daemon.request("PATCH", path, {}), 422, 422)
    record = {"records": [{"value": "new", "partition": 2}]}
    assert daemon.request("POST", "/topics/grown", record).status == 200
    assert len(daemon.fetch_all("grown", 0)) == 1
    assert len(daemon.fetch_all("grown", 2)) == 1


@pytest.mark.parametrize("lost", [0, 1])
def test_changes_survive_kill_9_and_the_loss_of_a_registry(tmp_path: Path, lost: int) -> None:
    """M13 M14: whichever directory loses its file, the other one tells."""
    with Daemon(tmp_path, log_dirs=2) as daemon:
        daemon.create_topic("t", 2)
        done(daemon.request("PUT", f"{configs(daemon, 't')}/flush.messages", {"value": "3"}))
        brokers = f"{cluster(daemon)}/brokers/1/configs"
        done(daemon.request("PUT", f"{brokers}/log.retention.ms", {"value": "7000000"}))
        growth = daemon.request("PATCH", f"{cluster(daemon)}/topics/t", {"partitions_count": 4})
        assert growth.status == 200
        daemon.kill()
        (daemon.log_dirs[lost] / "kafkalog.registry").unlink()
        daemon.start()
        assert overrides(daemon, "t") == {"flush.messages": "3"}
        assert daemon.request("GET", f"{cluster(daemon)}/topics/t").json["partitions_count"] == 4
        shown = daemon.request("GET", f"{configs(daemon, 't')}/retention.ms").json
        assert (shown["value"], shown["source"]) == ("7000000", "DYNAMIC_BROKER_CONFIG")
        assert len(list(tmp_path.glob("dir*/t-[0-3]"))) == 4
