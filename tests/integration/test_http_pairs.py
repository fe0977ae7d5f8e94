"""Goal: clients of the other REST proxies get the answers that docs/http-proxies.md states.
Method: a table of the requests whose answers no other test asserts, at a running daemon; each
difference of the page has a row here or another test by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import BINARY, ROOT, TEXT, V2, Daemon
from tests.integration.http_world import append, batch_of, check_sealed, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "3",
    "http_trusted_proxies": "127.0.0.0/8",
}
JSON = "application/json"
CONFLUENT = {"auto.offset.reset": "earliest", "auto.commit.enable": "false"}
Step = tuple[str, str, object]


@dataclass(frozen=True)
class Pair:
    """Paths may hold {c}, that of the cluster, and {i}, that of a consumer made for the pair.

    differs   the row of docs/http-proxies.md; "" where the proxies agree
    wanted    a shape (``fits``) of the answer's body; None: it has none
    media     Content-Type of the answer
    given     requests that must succeed before
    consumer  configs of the consumer beside CONFLUENT
    """

    differs: str
    method: str
    path: str
    status: int
    wanted: object = None
    body: object = None
    type: str | None = None
    accept: str = ""
    media: str = ""
    given: tuple[Step, ...] = ()
    consumer: Mapping[str, object] | None = None


def fits(wanted: object, value: object) -> bool:
    """A type, a dictionary of some members, a list of all elements, else the value itself."""
    match wanted:
        case type():
            return isinstance(value, wanted)
        case dict():
            return isinstance(value, dict) and all(
                name in value and fits(each, value[name]) for name, each in wanted.items()
            )
        case list():
            return (
                isinstance(value, list)
                and len(value) == len(wanted)
                and all(map(fits, wanted, value))
            )
    return wanted == value


def records(*values: object, **common: object) -> dict[str, object]:
    """The body of a produce."""
    return {"records": [{"value": value, **common} for value in values]}


def of(topic: str) -> Step:
    """The consumer reads a topic."""
    return ("POST", "{i}/subscription", {"topics": [topic]})


P0 = {"topic": "t", "partition": 0}
ASSIGNED = ("POST", "{i}/assignments", {"partitions": [P0]})
RECEIPT = {"partition": int, "offset": int, "error_code": None, "error": None}
RECEIPTS = {"offsets": [RECEIPT], "key_schema_id": None, "value_schema_id": None}
LOST = {"partition": None, "offset": None, "error_code": 40402, "error": str, "message": str}
UNREADABLE = {"error_code": 40602, "details": {"topic": "bytes", "partition": 0, "offset": 0}}
NO_REGISTRY = {
    "message": "That format needs a schema registry; kafkalog has none. Use binary or json."
}
V3_RECEIPT = {"error_code": 200, "cluster_id": str, "topic_name": "w", "partition_id": int,
              "offset": int, "timestamp": str}  # fmt: skip
BATCH = {"entries": [{"id": "a", "partition_id": 0}, {"id": "b", "partition_id": 9}]}
V3_TOPIC = {"topic_name": "v3-made", "partitions_count": 2, "replication_factor": 1}
GROUP = "{c}/consumer-groups/v3g"

PAIRS = (
    Pair("an error of one record", "POST", "/topics/w", 200,
         {**RECEIPTS, "offsets": [RECEIPT, LOST]},
         {"records": [{"value": "x"}, {"value": "y", "partition": 9}]}, TEXT),
    *(
        Pair("avro, jsonschema, protobuf", "POST", "/topics/w", 415, NO_REGISTRY, records("x"),
             f"application/vnd.kafka.{name}.v2+json")
        for name in ("avro", "jsonschema", "protobuf")
    ),
    Pair("", "POST", "/topics/w", 200, RECEIPTS,
         {**records("x"), "key_schema_id": None, "value_schema_id": 7}, TEXT),
    *(
        Pair("", "POST", "/topics/w", 200, RECEIPTS, records("AA=="),
             f"application/vnd.kafka.{name}.v1+json")
        for name in ("binary", "json")
    ),
    Pair("`partition` in the record and in the path", "POST", "/topics/w/partitions/1", 200,
         {"offsets": [{**RECEIPT, "partition": 0}]}, records("x", partition=0), TEXT),
    Pair("`Accept: */*` or none on a fetch", "GET", "/topics/t/partitions/0/records?offset=2", 200,
         [{"offset": 2}], accept="*/*", media=BINARY),
    Pair("JSON or UTF-8 that is none", "GET", "/topics/bytes/partitions/0/records?offset=0", 406,
         UNREADABLE, accept=TEXT),
    Pair("JSON or UTF-8 that is none", "GET", "{i}/records", 406, UNREADABLE, given=(of("bytes"),),
         consumer={"format": "json"}),
    Pair("a record or a body that is too large", "POST", "/topics/small", 413,
         {"error_code": 41301}, records("x" * 600), TEXT),
    # Confluent's clients join addresses: one slash at the end is taken.
    Pair("", "GET", "/topics/t/", 200, {"name": "t"}),
    Pair("", "GET", "{c}/brokers/", 200, {"kind": "KafkaBrokerList"}),
    Pair("", "POST", "{i}/subscription/", 204, None, {"topics": ["t"]},
         V2),
    Pair("v1 consumers", "POST", "/consumers/g/instances/i/topics/t", 404, {"error_code": 404}),
    Pair("a record larger than `max_bytes`", "GET", "{i}/records?timeout=0&max_bytes=10", 200,
         [{"offset": 0}], given=(of("large"),)),
    Pair("bodies on GET and DELETE, and their Content-Type", "DELETE", "{i}", 204, None, {},
         "text/plain"),
    *(
        Pair("Accept of a poll", "GET", "{i}/records?timeout=0", 200, [{"offset": 0}],
             accept=accept, media=BINARY, given=(of("bytes"),))
        for accept in ("*/*", "application/*", JSON, V2, f"text/html;q=0.9, {BINARY};q=0.2")
    ),
    Pair("", "GET", "{i}/records", 406, {"error_code": 40601}, accept=TEXT, given=(ASSIGNED,)),
    Pair("", "GET", "{i}/records?timeout=0", 200, [{"value": each} for each in ("v0", "v1", "v2")],
         media=TEXT, given=(of("t"),), consumer={"format": "text"}),
    Pair("`timeout` above the instance's own", "GET", "{i}/records?timeout=50", 200, [],
         given=(ASSIGNED, ("POST", "{i}/positions/end", {"partitions": [P0]})),
         consumer={"consumer.request.timeout.ms": 0}),
    Pair("`GET .../offsets` without a body", "GET", "{i}/offsets", 200, {"offsets": []},
         given=(ASSIGNED,)),
    Pair("", "POST", "{i}/offsets?async=true", 200, [], given=(ASSIGNED,)),
    Pair("", "POST", "{i}/offsets", 204, None, {"partitions": [{**P0, "offset": 2}]}, V2),
    # Confluent's commit names the last record, Redpanda's the next one.
    *(
        Pair("", "GET", "{i}/offsets", 200,
             {"offsets": [{**P0, "offset": stored, "metadata": "m"}]}, {"partitions": [P0]}, V2,
             given=(("POST", "{i}/offsets", {member: [{**P0, "offset": 2, "metadata": "m"}]}),))
        for member, stored in (("offsets", 3), ("partitions", 2))
    ),
    Pair("", "POST", "/admin/topics", 201, {}, {"topic_name": "bridged"},
         "application/vnd.kafka.json.v2+json"),
    Pair("`replication_factor`", "POST", "{c}/topics", 400, {"error_code": 40002},
         {"topic_name": "replicated", "replication_factor": 3}, JSON),
    Pair("", "POST", "{c}/topics", 201, {"kind": "KafkaTopic", **V3_TOPIC},
         {**V3_TOPIC, "configs": [{"name": "cleanup.policy", "value": "compact"}]}, JSON),
    Pair("", "DELETE", "{c}/brokers/1/configs/log.retention.bytes", 204),
    Pair("", "GET", f"{GROUP}/lags", 200,
         {"kind": "KafkaConsumerLagList",
          "data": [{"topic_name": "t", "current_offset": 1, "log_end_offset": 3, "lag": 2}]}),
    Pair("", "GET", f"{GROUP}/lag-summary", 200,
         {"kind": "KafkaConsumerGroupLagSummary", "max_lag": 2, "total_lag": 2}),
    Pair("JSON data", "POST", "{c}/topics/w/records", 200,
         {**V3_RECEIPT, "key": {"type": "STRING", "size": 1}, "value": {"type": "JSON", "size": 3}},
         b'{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":1.0}}', JSON),
    Pair("`type` in the receipt of a key or value that did not say it", "POST",
         "{c}/topics/w/records", 200, {**V3_RECEIPT, "value": {"type": "BINARY", "size": 1}},
         b'{"value":{"data":"AA=="}}', JSON),
    Pair("", "POST", "{c}/topics/w/records:batch", 207,
         {"successes": [{"id": "a", "offset": int}],
          "failures": [{"id": "b", "error_code": 40403, "message": str}]}, BATCH, JSON),
)  # fmt: skip

# By path: the kind, and the members that the REST Proxy has; of a list its first entity.
CONFIG = "name value is_default is_read_only is_sensitive source synonyms"
PARTITION = "topic_name partition_id leader replicas reassignment"
CLUSTER = "controller acls brokers broker_configs consumer_groups topics partition_reassignments"
TOPIC = (
    "topic_name is_internal replication_factor partitions_count partitions configs"
    " partition_reassignments authorized_operations topic_id config_overrides offline_partitions"
)
CONSUMERS = "consumer_group_id is_simple partition_assignor state coordinator consumers lag_summary"
ENTITIES = {
    "/v3/clusters": ("KafkaClusterList", CLUSTER),
    "/kafka{c}": ("KafkaCluster", CLUSTER),
    "{c}/brokers/1": ("KafkaBroker", "broker_id host port rack configs partition_replicas"),
    "{c}/brokers/1/configs": ("KafkaBrokerConfigList", f"broker_id {CONFIG}"),
    "{c}/broker-configs": ("KafkaClusterConfigList", f"config_type {CONFIG}"),
    "{c}/topics": ("KafkaTopicList", TOPIC),
    "{c}/topics/t/configs": ("KafkaTopicConfigList", f"topic_name {CONFIG}"),
    "{c}/topics/t/partitions": ("KafkaPartitionList", PARTITION),
    "{c}/topics/t/partitions/0": ("KafkaPartition", PARTITION),
    "{c}/topics/t/partitions/0/replicas/1": (
        "KafkaReplica", "topic_name partition_id broker_id is_leader is_in_sync broker"),
    GROUP: ("KafkaConsumerGroup", CONSUMERS),
    f"{GROUP}/consumers": ("KafkaConsumerList", "consumer_group_id consumer_id"),
}  # fmt: skip

# Differences of which another test is the evidence.
ELSEWHERE = {
    "error body": "test_unknown_topics_and_partitions",
    "overload": "test_requests_in_work_are_bounded",
    "404, 405, 413, 415 of the HTTP layer": "test_methods_and_paths",
    "a topic that may not be described": "test_unknown_and_forbidden_look_the_same",
    "halves that are switched off": "test_a_reader_reads_and_a_writer_writes",
    "compressed request bodies": "test_compressed_request_bodies",
    "an empty body where one is needed": "test_an_empty_body",
    "`charset` of a body": "test_a_charset_is_utf_8",
    "names of topics, groups and consumers": "test_names_are_checked_wherever_they_stand",
    "internal topics in a list of topics": "test_internal_topics_are_listed_when_asked_for",
    "probes": "test_probes",
    "every record of a produce failed for one reason": "test_one_reason_for_all_is_the_status",
    "`application/json` as Content-Type of a produce": "test_content_types",
    "`application/octet-stream` as Content-Type of a v2 produce": "test_content_types",
    "no Content-Type, or a form's": "test_content_types",
    "a missing or null value": "test_null_is_not_empty",
    "JSON text": "test_json_text_is_stored_as_sent",
    "base64": "test_base64_is_strict",
    "record headers, timestamps": "test_headers",
    "a partition by key": "test_partitions_are_chosen_as_the_daemon_does",
    "fetch `offset`, `timeout`, `max_bytes`": "test_offsets_out_of_range",
    "a produce to an unknown topic": "test_no_auto_creation_when_it_is_off",
    "topic creation over `/admin/topics` of one that exists": "test_an_existing_topic_is_refused",
    "`configs` in `/admin/topics`": "test_v2_metadata",
    "partitions out of service": "test_v2_metadata",
    "v1 messages": "test_the_path_of_the_v1_api",
    "a config of a consumer out of range": "test_what_is_created_wrongly_is_refused",
    "an unknown config of a consumer": "test_what_is_created_wrongly_is_refused",
    "configs of Kafka's consumer, and of other proxies": (
        "test_configs_of_other_consumers_are_taken_and_named"),
    "configs of a consumer that one proxy does not take": (
        "test_auto_commit_covers_what_was_delivered_before"),
    "`auto.offset.reset` that is not said": "test_latest_begins_at_the_subscription",
    "`fetch.min.bytes` that is not said": "test_a_waiting_poll_is_woken",
    "a poll without a subscription": "test_a_subscription_and_an_assignment_exclude_each_other",
    "a missing Content-Type of a consumer's route": "test_types_that_are_missing_or_foreign",
    "an Accept that names no type of these": "test_types_that_are_missing_or_foreign",
    "a v2 produce of the wrong shape": "test_a_wrong_shape_by_dialect",
    "`GET /topics/{topic}` of an unknown one": "test_a_configured_dialect",
    "a seek of a partition that is not assigned": (
        "test_an_instance_of_the_bridge_is_answered_as_there"),
    "an assignment of a topic that does not exist": (
        "test_an_instance_of_the_bridge_is_answered_as_there"),
    "`GET .../subscription` after an assignment by hand": (
        "test_an_instance_of_the_bridge_is_answered_as_there"),
    "a commit without a body": "test_a_lost_answer_comes_again",
    "a commit is answered 200 to Karapace's clients": (
        "test_a_consumer_reads_commits_and_comes_back"),
    "partitions without a commit": "test_a_consumer_reads_commits_and_comes_back",
    "a position by a time later than every record": "test_positions",
    "the port in `base_uri`": "test_the_way_to_an_instance",
    "pages": "test_pages",
    "`replicas_assignments`": "test_replicas_are_assigned_to_the_one_broker",
    "`offset_type`": "test_offsets_of_every_type",
    "delete-records": "test_offsets_of_every_type",
    "ACLs, reassignments": "test_what_one_node_does_not_have",
    "KafkaTopic": "test_an_entity_of_v3",
    "leader of a partition that is not served": "test_v3_topic",
    "errors in receipts of `records`": "test_types",
    "a record of the wrong shape": "test_types",
    "entries of `records:batch`": "test_batches_that_are_refused",
    "`type` AVRO, JSONSCHEMA, PROTOBUF": "test_types",
    "prefix": "test_addresses_lead_somewhere",
    "a PUT or POST of configs": "test_changes_survive_kill_9_and_the_loss_of_a_registry",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(daemon: Daemon) -> str:
    """Its path; the topics and the group that the pairs ask for are there."""
    for name, partitions in (("t", 2), ("w", 4), ("bytes", 1), ("large", 1)):
        daemon.create_topic(name, partitions)
    daemon.create_topic("small", max_message_bytes="500")
    for number in range(3):
        daemon.produce_text("t/partitions/0", f"v{number}")
    assert append(daemon, "bytes", batch_of(b"\xff\xfe")).status == 200
    for _ in range(2):
        daemon.produce_text("large", "x" * 1000)
    for method, path, body in (
        ("POST", "/consumers/v3g", {"name": "one", "auto.commit.enable": "false"}),
        ("POST", "/consumers/v3g/instances/one/subscription", {"topics": ["t"]}),
        ("PUT", "/v1/groups/v3g/offsets", {"offsets": [{**P0, "offset": 1}]}),
    ):
        assert daemon.request(method, path, body).status < 300
    return daemon.cluster()


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_pair(daemon: Daemon, cluster: str, number: int) -> None:
    """Status, media type and shape of the answer."""
    pair = PAIRS[number]
    places = {"c": cluster, "i": ""}
    if any("{i}" in path for path in (pair.path, *(path for _, path, _ in pair.given))):
        config = {**CONFLUENT, **(pair.consumer or {})}
        made = daemon.request("POST", f"/consumers/pair-{number}", config).json
        places["i"] = f"/consumers/pair-{number}/instances/{made['instance_id']}"
    for method, path, body in pair.given:
        answer = daemon.request(method, path.format_map(places), body, {"Content-Type": V2})
        assert answer.status < 300, answer.body
    headers = {"Content-Type": pair.type, "Accept": pair.accept}
    named = {name: value for name, value in headers.items() if value}
    answer = daemon.request(pair.method, pair.path.format_map(places), pair.body, named)
    assert answer.status == pair.status, answer.body
    check_sealed(answer)
    if pair.wanted is None:
        assert answer.body == b""
        return
    assert fits(pair.wanted, answer.json), answer.json
    if pair.media:
        assert answer.headers["Content-Type"].split(";")[0] == pair.media
    if pair.status >= 400:
        refused(answer, pair.status, answer.json["error_code"])


@pytest.mark.parametrize("path", ENTITIES)
def test_an_entity_of_v3(daemon: Daemon, cluster: str, path: str) -> None:
    """It has the members that clients of the REST Proxy read."""
    kind, members = ENTITIES[path]
    answer: Any = daemon.request("GET", path.format(c=cluster)).json
    assert answer["kind"] == kind
    if kind.endswith("List"):
        assert answer["metadata"].keys() == {"self", "next"}
        (answer, *_) = answer["data"]
    assert answer["metadata"].keys() == {"self", "resource_name"}
    assert {*members.split(), "cluster_id"} <= answer.keys()


def test_every_difference_is_on_the_page() -> None:
    """Each row of the page's tables has a pair or a test by name, and nothing else has."""
    page = (ROOT / "docs/http-proxies.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split(" | ")[0].removeprefix("| ") for line in page if line.startswith("| ")]
    rows = [cell for cell in cells if cell != "What"]
    shown = {pair.differs for pair in PAIRS if pair.differs}
    assert not shown & ELSEWHERE.keys()
    assert sorted(rows) == sorted(shown | ELSEWHERE.keys())
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for row, name in ELSEWHERE.items():
        assert f"def {name}(" in tests, row
