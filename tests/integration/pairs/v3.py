"""Pairs of REST Proxy v3 (1.7): administration and produce, with the fields that it has."""

from __future__ import annotations

import re
from typing import Any, cast

from tests.integration.pairs.pair import EMPTY, JSON, Pair, Step, error

C = "{cluster}"
LINK = {"related": re.compile("http://127.0.0.1:[0-9]+/v3/clusters/.*")}


def entity(kind: str, *members: str, **shapes: object) -> dict[Any, object]:
    """The shape of an entity; the members named alone are addresses."""
    return {
        "kind": kind,
        "metadata": {"self": str, "resource_name": re.compile("crn:///kafka=.*")},
        "cluster_id": str,
        **dict.fromkeys(members, cast("object", LINK)),
        **shapes,
        ...: ...,
    }


def page(kind: str, *of: object) -> dict[str, object]:
    """A list; of one shape for any number of them."""
    data: object = list(of)
    return {"kind": kind, "metadata": {"self": str, "next": None}, "data": data}


CLUSTER = entity(
    "KafkaCluster", "controller", "acls", "brokers", "broker_configs", "consumer_groups", "topics",
    "partition_reassignments",
)  # fmt: skip
BROKER = entity(
    "KafkaBroker", "configs", "partition_replicas", broker_id=1, host="127.0.0.1", port=int,
    rack=None,
)  # fmt: skip
TOPIC = entity(
    "KafkaTopic", "partitions", "configs", "partition_reassignments", topic_name=str,
    is_internal=bool, replication_factor=1, partitions_count=int, authorized_operations=...,
)  # fmt: skip
CONFIG: dict[str, object] = {
    "name": str,
    "value": ...,
    "is_default": bool,
    "is_read_only": bool,
    "is_sensitive": False,
    "source": str,
    "synonyms": ...,
}
TOPIC_CONFIG = entity("KafkaTopicConfig", **CONFIG, topic_name=str)
BROKER_CONFIG = entity("KafkaBrokerConfig", **CONFIG, broker_id=1)
CLUSTER_CONFIG = entity("KafkaClusterConfig", **CONFIG, config_type="BROKER")
PARTITION = entity(
    "KafkaPartition", "leader", "replicas", "reassignment", topic_name="t", partition_id=int
)
REPLICA = entity(
    "KafkaReplica", "broker", topic_name="t", partition_id=0, broker_id=1, is_leader=True,
    is_in_sync=True,
)  # fmt: skip
OFFSETS = entity("KafkaPartitionWithOffsets", topic_name="t", partition_id=0)
GROUP = entity(
    "KafkaConsumerGroup", "coordinator", "consumers", "lag_summary", consumer_group_id=str,
    is_simple=bool, partition_assignor=str, state=re.compile("STABLE|EMPTY"),
)  # fmt: skip
PREFIXED = "/kafka{cluster}"
NAME = "log.retention.bytes"
_SET = {
    "data": [{"name": "flush.ms", "value": "9"}, {"name": "retention.ms", "operation": "DELETE"}]
}
_GROWN = (Step("POST", f"{C}/topics", {"topic_name": "grown", "partitions_count": 1}, JSON),)
_GROUP = f"{C}/consumer-groups/v3g"
# A group with a member and a commit.
MEMBER = (
    Step("POST", "/consumers/v3g", {"name": "one", "auto.commit.enable": "false"}),
    Step("POST", "/consumers/v3g/instances/one/subscription", {"topics": ["t"]}),
    Step(
        "PUT",
        "/v1/groups/v3g/offsets",
        {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]},
        JSON,
    ),
)

ADMINISTRATION = (
    Pair("1.7 broker configs", "DELETE", f"{C}/brokers/1/configs/{NAME}", 204),
    Pair("1.7 clusters", "GET", "/v3/clusters", 200, page("KafkaClusterList", CLUSTER),
         answer_headers={"Content-Type": JSON}),
    Pair("1.7 clusters", "GET", PREFIXED, 200, {"kind": "KafkaCluster", ...: ...},
         differs="prefix"),
    Pair("1.7 brokers", "GET", f"{C}/brokers/1", 200, BROKER),
    Pair("1.7 broker configs", "GET", f"{C}/brokers/1/configs", 200,
         page("KafkaBrokerConfigList", BROKER_CONFIG)),
    Pair("1.7 broker configs", "GET", f"{C}/broker-configs", 200,
         page("KafkaClusterConfigList", CLUSTER_CONFIG)),
    Pair("1.7 broker configs", "PUT", f"{C}/brokers/1/configs/{NAME}", 204, EMPTY, {"value": "5"},
         JSON, differs="a PUT or POST of configs"),
    Pair("1.7 broker configs", "GET", f"{C}/brokers/1/configs/{NAME}", 200,
         {**BROKER_CONFIG, "value": "5", "source": "DYNAMIC_BROKER_CONFIG"},
         given=(Step("PUT", f"{C}/brokers/1/configs/{NAME}", {"value": "5"}, JSON),)),
    Pair("1.7 broker configs", "GET", f"{C}/broker-configs/{NAME}", 200,
         {**CLUSTER_CONFIG, "value": "7"},
         given=(Step("PUT", f"{C}/broker-configs/{NAME}", {"value": "7"}, JSON),)),
    Pair("1.7 GET topics", "GET", f"{C}/topics?page_size=1", 200,
         {"kind": "KafkaTopicList", "metadata": {"self": str, "next": str}, "data": (TOPIC,)},
         differs="pages"),
    Pair("1.7 POST topics", "POST", f"{C}/topics", 201, {**TOPIC, "topic_name": "v3-made"},
         {"topic_name": "v3-made", "partitions_count": 2, "replication_factor": 1,
          "configs": [{"name": "cleanup.policy", "value": "compact"}]}, JSON,
         answer_headers={"Location": re.compile("http://.*/topics/v3-made")}),
    Pair("1.7 POST topics", "POST", f"{C}/topics", 400, error(40002),
         {"topic_name": "replicated", "replication_factor": 3}, JSON, theirs=201,
         differs="`replication_factor`"),
    Pair("1.7 GET DELETE topic", "GET", f"{C}/topics/t", 200,
         {**TOPIC, "topic_id": re.compile("[A-Za-z0-9_-]{22}"), "config_overrides": {},
          "offline_partitions": ()}, differs="KafkaTopic"),
    Pair("1.7 PATCH topic", "PATCH", f"{C}/topics/grown", 200, {**TOPIC, "partitions_count": 3},
         {"partitions_count": 3}, JSON, given=_GROWN),
    Pair("1.7 GET configs", "GET", f"{C}/topics/t/configs", 200,
         page("KafkaTopicConfigList", TOPIC_CONFIG)),
    Pair("1.7 GET PUT DELETE config", "PUT", f"{C}/topics/w/configs/flush.ms", 204, EMPTY,
         {"value": "5"}, JSON, differs="a PUT or POST of configs"),
    Pair("1.7 GET PUT DELETE config", "GET", f"{C}/topics/w/configs/flush.ms", 200,
         {**TOPIC_CONFIG, "value": "5", "source": "DYNAMIC_TOPIC_CONFIG"},
         given=(Step("PUT", f"{C}/topics/w/configs/flush.ms", {"value": "5"}, JSON),)),
    Pair("1.7 configs:alter", "POST", f"{C}/topics/w/configs:alter", 204, EMPTY, _SET, JSON,
         differs="a PUT or POST of configs"),
    Pair("1.7 partitions and replicas", "GET", f"{C}/topics/t/partitions", 200,
         {"kind": "KafkaPartitionList", "metadata": ..., "data": (PARTITION, PARTITION)},
         differs="leader of a partition that is not served"),
    Pair("1.7 partitions and replicas", "GET", f"{C}/topics/t/partitions/0", 200, PARTITION),
    Pair("1.7 partitions and replicas", "GET", f"{C}/topics/t/partitions/0/replicas/1", 200,
         REPLICA),
    Pair("1.7 offset", "GET",
         f"{C}/topics/t/partitions/0/offset?offset_type=timestamp&timestamp=1500", 200,
         {**OFFSETS, "offset": 1, "timestamp": 2000}, theirs=400, differs="`offset_type`"),
    Pair("1.7 ACLs, reassignments", "GET", f"{C}/acls", 501, error(501), theirs=200,
         differs="ACLs, reassignments"),
    Pair("1.7 ACLs, reassignments", "GET", f"{C}/topics/-/partitions/-/reassignment", 501,
         error(501), theirs=200, differs="ACLs, reassignments"),
    Pair("1.7 records:delete", "POST", f"{C}/topics/cut/partitions/0/records:delete", 200,
         entity("KafkaDeletedRecords", low_watermark=3), {"offset": 2}, JSON, theirs=404,
         differs="delete-records"),
)  # fmt: skip

GROUPS = (
    Pair("1.7 consumer-groups", "GET", _GROUP, 200, GROUP),
    Pair("1.7 consumer-groups", "GET", f"{_GROUP}/consumers", 200,
         page("KafkaConsumerList", entity("KafkaConsumer", consumer_id="one"))),
    Pair("1.7 consumer-groups", "GET", f"{_GROUP}/lags", 200,
         page("KafkaConsumerLagList", entity("KafkaConsumerLag", topic_name="t", partition_id=0,
                                             current_offset=1, log_end_offset=3, lag=2))),
    Pair("1.7 consumer-groups", "GET", f"{_GROUP}/lag-summary", 200,
         entity("KafkaConsumerGroupLagSummary", max_lag=2, total_lag=2)),
)  # fmt: skip

_RECORDS, _BATCH = f"{C}/topics/w/records", f"{C}/topics/w/records:batch"
RECEIPT: dict[Any, object] = {
    "error_code": 200,
    "cluster_id": str,
    "topic_name": "w",
    "partition_id": int,
    "offset": int,
    "timestamp": re.compile("[0-9-]{10}T[0-9:.]{12}Z"),
}
ENTRY = {name: shape for name, shape in RECEIPT.items() if name != "error_code"} | {"id": str}
# In a stream the request has its id in the header alone.
FAULT: dict[Any, object] = {"message": str, "kafka_error": str, "retriable": False, ...: ...}
_REGISTRY = b'{"value":{"type":"AVRO","data":{}}}'

PRODUCE = (
    Pair("1.7 records", "POST", _RECORDS, 200,
         {**RECEIPT, "key": {"type": "STRING", "size": 1}, "value": {"type": "JSON", "size": 3}},
         b'{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":1.0}}', JSON,
         answer_headers={"Content-Type": JSON}, differs="JSON data"),
    Pair("1.7 records", "POST", _RECORDS, 200, {**RECEIPT, "value": {"type": "BINARY", "size": 1}},
         b'{"value":{"data":"AA=="}}', JSON,
         differs="`type` in the receipt of a key or value that did not say it"),
    Pair("1.7 records", "POST", _RECORDS, 200, {**FAULT, "error_code": 40403},
         b'{"partition_id":9,"value":{"data":""}}', JSON, theirs=(200, 404),
         differs="errors in receipts of `records`"),
    Pair("1.7 records", "POST", _RECORDS, 200, {**FAULT, "error_code": 422}, _REGISTRY, JSON,
         differs="`type` AVRO, JSONSCHEMA, PROTOBUF"),
    Pair("1.7 records:batch", "POST", _BATCH, 207,
         {"successes": ({**ENTRY, "id": "a"},),
          "failures": ({**FAULT, "id": "b", "error_code": 40403},)},
         {"entries": [{"id": "a", "partition_id": 0}, {"id": "b", "partition_id": 9}]}, JSON),
    Pair("1.7 records:batch", "POST", _BATCH, 207,
         {"successes": (ENTRY,) * 12, "failures": ()},
         {"entries": [{"id": str(number)} for number in range(12)]}, JSON, theirs=(422, 42208),
         differs="entries of `records:batch`"),
)  # fmt: skip

PAIRS = (*ADMINISTRATION, *GROUPS, *PRODUCE)
