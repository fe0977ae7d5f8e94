"""Goal: clients of the other REST proxies get the answers that docs/reference/http-proxies.md
states.
Method: the table of cases in tests/proxies, asked of one daemon, with one report of all that are
answered otherwise; each difference of the page has a case or another test by name.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.daemon import ROOT, V2, Answer, Daemon
from tests.integration.http_world import append, batch_of, check_sealed, refused
from tests.proxies.case import CONSUMERS, PROXIES, SOURCES, at, fits
from tests.proxies.table import CASES
from tools.proxies_page import MARK, proxies_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.proxies.case import Case

SETTINGS = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "3",
    "http_trusted_proxies": "127.0.0.0/8",
}
PAGE = ROOT / "docs/reference/http-proxies.md"
GROUP = "{c}/consumer-groups/v3g"

# By path: the kind, and the members that the REST Proxy has; of a list its first entity.
CONFIG = "name value is_default is_read_only is_sensitive source synonyms"
PARTITION = "topic_name partition_id leader replicas reassignment"
CLUSTER = "controller acls brokers broker_configs consumer_groups topics partition_reassignments"
TOPIC = (
    "topic_name is_internal replication_factor partitions_count partitions configs"
    " partition_reassignments authorized_operations topic_id config_overrides offline_partitions"
)
GROUPS = "consumer_group_id is_simple partition_assignor state coordinator consumers lag_summary"
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
    GROUP: ("KafkaConsumerGroup", GROUPS),
    f"{GROUP}/consumers": ("KafkaConsumerList", "consumer_group_id consumer_id"),
}  # fmt: skip

# Differences of which another test is the evidence.
ELSEWHERE = {
    "overload": "test_requests_in_work_are_bounded",
    "404, 405, 413, 415 of the HTTP layer": "test_methods_and_paths",
    "a topic that may not be described": "test_unknown_and_forbidden_look_the_same",
    "halves that are switched off": "test_a_reader_reads_and_a_writer_writes",
    "compressed request bodies": "test_compressed_request_bodies",
    "names of topics, groups and consumers": "test_names_are_checked_wherever_they_stand",
    "internal topics in a list of topics": "test_internal_topics_are_listed_when_asked_for",
    "JSON text": "test_json_text_is_stored_as_sent",
    "base64": "test_base64_is_strict",
    "record headers, timestamps": "test_headers",
    "a partition by key": "test_partitions_are_chosen_as_the_daemon_does",
    "`configs` in `/admin/topics`": "test_v2_metadata",
    "partitions out of service": "test_v2_metadata",
    "configs of Kafka's consumer, and of other proxies": (
        "test_configs_of_other_consumers_are_taken_and_named"),
    "configs of a consumer that one proxy does not take": (
        "test_auto_commit_covers_what_was_delivered_before"),
    "`auto.offset.reset` that is not said": "test_latest_begins_at_the_subscription",
    "a poll without a position in the log, with `auto.offset.reset=none`": (
        "test_what_a_consumer_without_a_reset_is_told"),
    "`fetch.min.bytes` that is not said": "test_a_waiting_poll_is_woken",
    "an Accept that names no type of these": "test_types_that_are_missing_or_foreign",
    "a seek of a partition that is not assigned": (
        "test_an_instance_of_the_bridge_is_answered_as_there"),
    "`GET .../subscription` after an assignment by hand": (
        "test_an_instance_of_the_bridge_is_answered_as_there"),
    "a commit without a body": "test_a_lost_answer_comes_again",
    "a commit is answered 200 to Karapace's clients": (
        "test_a_consumer_reads_commits_and_comes_back"),
    "pages": "test_pages",
    "`replicas_assignments`": "test_replicas_are_assigned_to_the_one_broker",
    "delete-records": "test_offsets_of_every_type",
    "KafkaTopic": "test_an_entity_of_v3",
    "leader of a partition that is not served": "test_v3_topic",
    "a record of the wrong shape": "test_types",
    "prefix": "test_addresses_lead_somewhere",
    "a PUT or POST of configs": "test_changes_survive_kill_9_and_the_loss_of_a_registry",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(daemon: Daemon) -> str:
    """Its path; the topics and the group that the cases ask for are there."""
    for name, partitions in (("t", 2), ("w", 4), ("bytes", 1), ("large", 1), ("empty", 2)):
        daemon.create_topic(name, partitions)
    daemon.create_topic("small", max_message_bytes="500")
    for number in range(3):
        daemon.produce_text("t/partitions/0", f"v{number}")
    assert append(daemon, "bytes", batch_of(b"\xff\xfe")).status == 200
    for _ in range(2):
        daemon.produce_text("large", "x" * 1000)
    headers = [{"key": "key1", "value": "AA=="}, {"key": "none", "value": None}]
    of_json = (
        ("json", [{"key": "k", "value": {"n": number}} for number in range(3)]),
        ("headers", [{"value": "v", "timestamp": 1000, "headers": headers}]),
    )
    for topic, records in of_json:
        daemon.create_topic(topic)
        answer = daemon.request("POST", f"/topics/{topic}", {"records": records})
        assert answer.status == 200, answer.body
    for method, path, body in (
        ("POST", "/consumers/v3g", {"name": "one", "auto.commit.enable": "false"}),
        ("POST", "/consumers/v3g/instances/one/subscription", {"topics": ["t"]}),
        ("PUT", "/v1/groups/v3g/offsets", {"offsets": [at("t", offset=1)]}),
    ):
        assert daemon.request(method, path, body).status < 300
    return daemon.cluster()


class Asker:
    """Asks for cases, one after another on one connection."""

    def __init__(self, daemon: Daemon, cluster: str) -> None:
        self._daemon = daemon
        self._cluster = cluster
        self._connection = daemon.connect(30)

    def close(self) -> None:
        self._connection.close()

    def send(self, request: str, body: object, headers: Mapping[str, str]) -> Answer:
        """No header is added; a body that is no bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        method, _, path = request.partition(" ")
        self._connection.request(method, path, data, dict(headers))
        answer = self._connection.getresponse()
        return Answer(answer.status, dict(answer.headers), answer.read())

    def fault(self, number: int, case: Case) -> str:
        """What is wrong with the answer to a case; nothing: ""."""
        topic = f"case-{number}"
        places, text = {"{c}": self._cluster, "{t}": topic}, repr(case)
        if "{t}" in text:
            self._daemon.create_topic(topic, 2)
        if "{i}" in text:
            config = {**CONSUMERS[case.dialect], **case.consumer}
            made = self.send(f"POST /consumers/{topic}", config, {"Content-Type": V2})
            if made.status != 200:
                return f"no consumer: {made.body!r}"
            places["{i}"] = f"/consumers/{topic}/instances/{made.json['instance_id']}"
        for request, body in case.given:
            kind = "application/json" if "{c}" in request else V2
            step, sent = filled((request, body), places)
            done = self.send(step, sent, {"Content-Type": kind})
            if done.status >= 300:
                return f"{request} before: {done.status} {done.body!r}"
        named = {"Content-Type": case.type, "Accept": case.accept}
        headers = {name: value for name, value in named.items() if value}
        request, body = filled((case.request, case.body), places)
        return judged(case, self.send(request, body, headers | dict(case.headers)), places)


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """With the names of what was made for the case."""
    match value:
        case str():
            for place, name in places.items():
                value = value.replace(place, name)
            return value
        case dict():
            return {name: filled(each, places) for name, each in value.items()}
        case list() | tuple():
            return type(value)(filled(each, places) for each in value)
    return value


def judged(case: Case, answer: Answer, places: Mapping[str, str]) -> str:
    """What is wrong with an answer."""
    said = f"{answer.status} {answer.body[:300]!r}"
    if answer.status != case.status:
        return said
    try:
        check_sealed(answer)
        if answer.status >= 400:
            number = case.wanted if isinstance(case.wanted, int) else answer.json["error_code"]
            refused(answer, case.status, number)
    except (AssertionError, KeyError) as error:
        return f"{said}: {error!r}"
    if case.media and answer.headers.get("Content-Type", "").split(";")[0] != case.media:
        return f"{said}: {answer.headers.get('Content-Type')}"
    if case.wanted is None:
        return said if answer.body else ""
    is_code = isinstance(case.wanted, int)
    return "" if is_code or fits(filled(case.wanted, places), answer.json) else said


@pytest.fixture(scope="module")
def asker(daemon: Daemon, cluster: str) -> Iterator[Asker]:
    one = Asker(daemon, cluster)
    yield one
    one.close()


def test_every_case(asker: Asker) -> None:
    """Status, error number, media type and shape of each answer."""
    faults = []
    for number, case in enumerate(CASES):
        try:
            fault = asker.fault(number, case)
        except (OSError, ValueError, http.client.HTTPException) as error:
            fault = repr(error)
        if fault:
            asked = f"{case.dialect}: {case.name}: {case.request}"
            faults.append(f"{asked}, not {case.answer}: {fault}")
    assert not faults, "\n".join((f"{len(faults)} of {len(CASES)}", *faults))


def test_the_table() -> None:
    """At least 300 cases, no two alike, each from a source; a difference has its reason."""
    assert len(CASES) >= 300
    keys = [(case.dialect, case.request, case.name) for case in CASES]
    assert len(set(keys)) == len(keys), [key for key in keys if keys.count(key) > 1]
    for case in CASES:
        kind, _, place = case.source.partition(" ")
        assert kind in SOURCES, case
        assert place, case
        assert case.dialect in PROXIES
        assert kind.partition("-")[0] == case.dialect.replace("v3", "confluent"), case
        assert case.differs or not case.there, case
        assert case.there != case.answer, case


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
    """Each row of the page's tables has a case or a test by name, and nothing else has.

    What follows the mark is made from the cases.
    """
    page = PAGE.read_text(encoding="utf-8")
    assert page == proxies_page(page), "run make docs"
    lines = page.partition(MARK)[0].splitlines()
    cells = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    rows = [cell for cell in cells if cell != "What"]
    shown = {case.differs for case in CASES if case.differs}
    assert not shown & ELSEWHERE.keys()
    assert sorted(rows) == sorted(shown | ELSEWHERE.keys())
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for row, name in ELSEWHERE.items():
        assert f"def {name}(" in tests, row
