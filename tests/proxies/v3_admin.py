"""Clusters, brokers, topics, configs and groups of v3."""

from __future__ import annotations

from tests.proxies.case import JSON, V3, Case

TOPICS = "{c}/topics"
CONFIGS = "{c}/topics/{t}/configs"
GROUP = "{c}/consumer-groups/v3g"
CLUSTER = {"kind": "KafkaCluster", "cluster_id": str, "metadata": {"self": str}}
BROKER = {"kind": "KafkaBroker", "broker_id": 1, "host": str, "port": int}
TOPIC = {"kind": "KafkaTopic", "topic_name": "t", "is_internal": False, "replication_factor": 1,
         "partitions_count": 2, "partitions": {"related": str},
         "configs": {"related": str}}  # fmt: skip
REPLICA = {"kind": "KafkaReplica", "topic_name": "t", "partition_id": 0, "broker_id": 1,
           "is_leader": True, "is_in_sync": True}  # fmt: skip
PARTITION = {"kind": "KafkaPartition", "topic_name": "t", "partition_id": 0,
             "leader": {"related": str}, "replicas": {"related": str}}  # fmt: skip
OFFSETS = {"kind": "KafkaPartitionWithOffsets", "earliest_offset": 0, "latest_offset": 3}
POLICY = {"kind": "KafkaTopicConfig", "name": "cleanup.policy", "value": "delete",
          "is_default": True, "source": "DEFAULT_CONFIG"}  # fmt: skip
LAG = {"kind": "KafkaConsumerLag", "topic_name": "t", "partition_id": 0, "current_offset": 1,
       "log_end_offset": 3, "lag": 2}  # fmt: skip
COMPACT = {"data": [{"name": "cleanup.policy", "value": "compact"},
                    {"name": "compression.type", "value": "gzip"}]}  # fmt: skip
NO_NODES = "ACLs, reassignments"
MISSING = "an unknown cluster, partition, group or lag in v3"


def many(kind: str) -> dict[str, object]:
    """A list of v3."""
    return {"kind": kind, "metadata": {"self": str, "next": None}, "data": list}


def suite(name: str) -> str:
    """A test of the REST Proxy's v3."""
    suite, _, test = name.partition(" ")
    return f"confluent-v3 {suite}IntegrationTest {test}"


def elsewhere(path: str) -> str:
    """Of a cluster that is not this one."""
    return f"/v3/clusters/foobar/{path}".rstrip("/")


def new(name: str, **more: object) -> dict[str, object]:
    """The body of a creation."""
    return {"topic_name": name, "partitions_count": 1, "replication_factor": 1, **more}


def created(name: str) -> dict[str, object]:
    """The answer to one."""
    return {**TOPIC, "topic_name": name, "partitions_count": 1}


CASES = (
    # ---- what is there
    *(
        Case(words, V3, f"GET {path}", 200, wanted, suite(source), accept=JSON, media=JSON)
        for words, path, wanted, source in (
            ("clusters", "/v3/clusters", {"kind": "KafkaClusterList", "data": [CLUSTER]},
             "ClustersResource listClusters_returnsArrayWithOwnCluster"),
            ("a cluster", "{c}", CLUSTER, "ClustersResource getCluster_ownCluster"),
            ("brokers", "{c}/brokers", {**many("KafkaBrokerList"), "data": [BROKER]},
             "BrokersResource listBrokers_existingCluster"),
            ("a broker", "{c}/brokers/1", BROKER, "BrokersResource getBroker_existingBroker"),
            ("topics", TOPICS, many("KafkaTopicList"),
             "TopicsResource listTopics_existingCluster"),
            ("a topic", f"{TOPICS}/t", TOPIC,
             "TopicsResource getTopic_existingClusterExistingTopic"),
            ("partitions", f"{TOPICS}/t/partitions",
             {**many("KafkaPartitionList"), "data": [PARTITION, {"partition_id": 1}]},
             "PartitionsResource listPartitions_existingTopic"),
            ("a partition", f"{TOPICS}/t/partitions/0", PARTITION,
             "PartitionsResource getPartition_existingPartition"),
            ("replicas", f"{TOPICS}/t/partitions/0/replicas",
             {**many("KafkaReplicaList"), "data": [REPLICA]},
             "ReplicasResource listReplicas_existingPartition"),
            ("a replica", f"{TOPICS}/t/partitions/0/replicas/1", REPLICA,
             "ReplicasResource getReplica_existingReplica"),
            ("replicas of a broker", "{c}/brokers/1/partition-replicas", many("KafkaReplicaList"),
             "SearchReplicasByBrokerAction searchReplicasByBroker_existingBroker"),
            ("offsets of a partition",
             f"{TOPICS}/t/partitions/0/offset?offset_type=earliest_and_latest", OFFSETS,
             "ListPartitionOffsetsAction listPartitionOffsets_existingPartitionWithOffsets"),
            ("configs of a topic", f"{TOPICS}/t/configs", many("KafkaTopicConfigList"),
             "TopicConfigsResource listTopicConfigs_existingTopic"),
            ("a config of a topic", f"{TOPICS}/t/configs/cleanup.policy", POLICY,
             "TopicConfigsResource getTopicConfig_existingConfig"),
            ("configs of all topics", f"{TOPICS}/-/configs", many("KafkaTopicConfigList"),
             "ListAllTopicsConfigsAction listTopicConfigs_existingTopics"),
            ("configs of a broker", "{c}/brokers/1/configs", many("KafkaBrokerConfigList"),
             "BrokerConfigsResource listBrokerConfigs_existingBroker"),
            ("a config of a broker", "{c}/brokers/1/configs/compression.type",
             {"kind": "KafkaBrokerConfig", "name": "compression.type", "value": "producer"},
             "BrokerConfigsResource getBrokerConfig_existingConfig"),
            ("configs of all brokers", "{c}/brokers/-/configs", many("KafkaBrokerConfigList"),
             "ListAllBrokersConfigsAction listBrokersConfigs_existingBrokers"),
            ("configs of the cluster", "{c}/broker-configs", many("KafkaClusterConfigList"),
             "ClusterConfigsResource updateAndReset_existingConfig"),
            ("groups", "{c}/consumer-groups", many("KafkaConsumerGroupList"),
             "ConsumerGroupsResource listConsumerGroups_returnsConsumerGroups"),
            ("a group", GROUP, {"kind": "KafkaConsumerGroup", "consumer_group_id": "v3g"},
             "ConsumerGroupsResource getConsumerGroup_returnsConsumerGroup"),
            ("consumers", f"{GROUP}/consumers",
             {**many("KafkaConsumerList"), "data": [{"consumer_id": "one"}]},
             "ConsumersResource listConsumers_returnsConsumers"),
            ("a consumer", f"{GROUP}/consumers/one", {"kind": "KafkaConsumer"},
             "ConsumersResource getConsumer_returnsConsumer"),
            ("assignments", f"{GROUP}/consumers/one/assignments",
             many("KafkaConsumerAssignmentList"),
             "ConsumerAssignmentsResource listConsumerAssignments_returnsConsumerAssignments"),
            ("an assignment", f"{GROUP}/consumers/one/assignments/t/partitions/0",
             {"kind": "KafkaConsumerAssignment", "topic_name": "t", "partition_id": 0},
             "ConsumerAssignmentsResource getConsumerAssignment_returnsConsumerAssignment"),
            ("lags", f"{GROUP}/lags", {**many("KafkaConsumerLagList"), "data": [LAG]},
             "ConsumerLagsResource listConsumerLags_returnsConsumerLags"),
            ("a lag", f"{GROUP}/lags/t/partitions/0", LAG,
             "ConsumerLagsResource getConsumerLag_returnsConsumerLag"),
            ("a summary of lags", f"{GROUP}/lag-summary",
             {"kind": "KafkaConsumerGroupLagSummary", "max_lag": 2, "total_lag": 2},
             "ConsumerGroupLagSummariesResource getConsumerGroupLagSummary_returns"),
        )
    ),
    Case("clusters behind a slash", V3, "GET /v3/clusters/", 200, {"kind": "KafkaClusterList"},
         "confluent-code resources/v3/ClustersResource"),
    Case("a topic behind a slash", V3, f"GET {TOPICS}/t/", 200, TOPIC,
         "confluent-code resources/v3/TopicsResource"),
    Case("a cluster as Confluent Server has it", V3, "GET /kafka{c}", 200, CLUSTER,
         "confluent-page /kafka/v3"),
    # ---- another cluster
    *(
        Case(f"another cluster: {path or 'itself'}", V3, f"GET {elsewhere(path)}", 404, 40403,
             suite(source), accept=JSON, there="404/404", differs=MISSING)
        for path, source in (
            ("", "ClustersResource getCluster_differentCluster"),
            ("brokers", "BrokersResource listBrokers_nonExistingCluster"),
            ("brokers/1", "BrokersResource getBroker_nonExistingCluster"),
            ("brokers/1/configs", "BrokerConfigsResource listBrokerConfigs_nonExistingCluster"),
            ("brokers/1/configs/compression.type",
             "BrokerConfigsResource getBrokerConfig_nonExistingCluster"),
            ("brokers/-/configs",
             "ListAllBrokersConfigsAction listBrokerConfigs_nonExistingCluster"),
            ("broker-configs", "ClusterConfigsResource listClusterConfigs_nonExistingCluster"),
            ("topics", "TopicsResource listTopics_nonExistingCluster"),
            ("topics/t", "TopicsResource getTopic_nonExistingCluster"),
            ("topics/t/configs", "TopicConfigsResource listTopicConfigs_nonExistingCluster"),
            ("topics/t/configs/cleanup.policy",
             "TopicConfigsResource getTopicConfig_nonExistingCluster"),
            ("topics/-/configs", "ListAllTopicsConfigsAction listTopicConfigs_nonExistingCluster"),
            ("topics/t/partitions", "PartitionsResource listPartitions_nonExistingCluster"),
            ("topics/t/partitions/0", "PartitionsResource getPartition_nonExistingCluster"),
            ("topics/t/partitions/0/replicas", "ReplicasResource listReplicas_nonExistingCluster"),
            ("topics/t/partitions/0/replicas/1", "ReplicasResource getReplica_nonExistingCluster"),
            ("topics/t/partitions/0/offset?offset_type=earliest_and_latest",
             "ListPartitionOffsetsAction getPartition_nonExistingCluster"),
            ("consumer-groups", "ConsumerGroupsResource listConsumerGroups_nonExistingCluster"),
            ("consumer-groups/v3g", "ConsumerGroupsResource getConsumerGroup_nonExistingCluster"),
            ("consumer-groups/v3g/consumers", "ConsumersResource listConsumers_nonExistingCluster"),
            ("consumer-groups/v3g/lags/t/partitions/0",
             "ConsumerLagsResource getConsumerLag_nonExistingCluster"),
            ("consumer-groups/v3g/lag-summary",
             "ConsumerGroupLagSummariesResource getConsumerGroupLagSummary_nonExistingCluster"),
        )
    ),
    *(
        Case(f"another cluster: {request}", V3,
             f"{request.split()[0]} {elsewhere(request.split()[1])}", 404, 40403, suite(source),
             body=body, type=JSON, there="404/404", differs=MISSING)
        for request, source, body in (
            ("POST topics", "TopicsResource createTopic_nonExistingCluster", new("topic-4")),
            ("DELETE topics/t", "TopicsResource deleteTopic_nonExistingCluster", None),
            ("PUT topics/t/configs/cleanup.policy",
             "TopicConfigsResource updateTopicConfig_nonExistingCluster", {"value": "compact"}),
            ("DELETE topics/t/configs/cleanup.policy",
             "TopicConfigsResource resetTopicConfig_nonExistingCluster", None),
            ("PUT broker-configs/compression.type",
             "ClusterConfigsResource updateClusterConfig_nonExistingCluster", {"value": "gzip"}),
            ("DELETE broker-configs/compression.type",
             "ClusterConfigsResource resetClusterConfig_nonExistingCluster", None),
            ("PUT brokers/1/configs/compression.type",
             "BrokerConfigsResource updateBrokerConfig_nonExistingCluster", {"value": "producer"}),
            ("DELETE brokers/1/configs/compression.type",
             "BrokerConfigsResource resetBrokerConfig_nonExistingCluster", None),
            ("POST topics/-/configs:alter",
             "TopicConfigsResource alterMultipleTopicsConfigsBatch_nonExistingCluster",
             {"data": [{"topic_name": "t", "configs": COMPACT["data"]}]}),
        )
    ),
    # ---- what is not there
    *(
        Case(f"unknown: {path}", V3, f"GET {{c}}/{path}", 404, code, suite(source), accept=JSON,
             there=there, differs=MISSING if there else "")
        for path, code, source, there in (
            ("topics/none", 40403, "TopicsResource getTopic_nonExistingTopic", ""),
            ("topics/none/configs", 40403,
             "TopicConfigsResource listTopicConfigs_nonExistingTopic", ""),
            ("topics/none/configs/cleanup.policy", 40403,
             "TopicConfigsResource getTopicConfig_nonExistingTopic", ""),
            ("topics/t/configs/foobar", 404,
             "TopicConfigsResource getTopicConfig_nonExistingConfig", ""),
            ("topics/none/partitions", 40403,
             "PartitionsResource listPartitions_nonExistingTopic", ""),
            ("topics/none/partitions/0", 40403,
             "PartitionsResource getPartition_nonExistingTopic", ""),
            ("topics/t/partitions/100", 40403,
             "PartitionsResource getPartition_nonExistingPartition", "404/404"),
            ("topics/none/partitions/0/replicas", 40403,
             "ReplicasResource listReplicas_nonExistingTopic", ""),
            ("topics/t/partitions/100/replicas", 40403,
             "ReplicasResource listReplicas_nonExistingPartition", "404/404"),
            ("topics/t/partitions/100/replicas/1", 40403,
             "ReplicasResource getReplica_nonExistingPartition", "404/404"),
            ("topics/t/partitions/0/replicas/100", 404,
             "ReplicasResource getReplica_nonExistingReplica", ""),
            ("topics/none/partitions/0/replicas/1", 40403,
             "ReplicasResource getReplica_nonExistingTopic", ""),
            ("topics/t/partitions/100/offset?offset_type=earliest_and_latest", 40403,
             "ListPartitionOffsetsAction listPartitionOffsets_nonExistingPartition", "404/40402"),
            ("topics/none/partitions/0/offset?offset_type=earliest_and_latest", 40403,
             "ListPartitionOffsetsAction getPartition_nonExistingTopic", ""),
            ("brokers/100", 404, "BrokersResource getBroker_nonExistingBroker", ""),
            ("brokers/foobar/configs", 404,
             "BrokerConfigsResource listBrokerConfigs_nonExistingBroker", ""),
            ("brokers/foobar/configs/compression.type", 404,
             "BrokerConfigsResource getBrokerConfig_nonExistingBroker", ""),
            ("brokers/1/configs/foobar", 404,
             "BrokerConfigsResource getBrokerConfig_nonExistingConfig", ""),
            ("brokers/100/partition-replicas", 404,
             "SearchReplicasByBrokerAction searchReplicasByBroker_nonExistingBroker", ""),
            ("broker-configs/foobar", 404,
             "ClusterConfigsResource getClusterConfig_nonExistingConfig", ""),
            ("consumer-groups/none", 40405,
             "ConsumerGroupsResource getConsumerGroup_nonExistingConsumerGroup", "404/404"),
            ("consumer-groups/none/consumers/c", 40403,
             "ConsumersResource getConsumer_nonExistingConsumerGroup", "404/404"),
            ("consumer-groups/v3g/consumers/none", 40403,
             "ConsumersResource getConsumer_nonExistingConsumer", "404/404"),
            ("consumer-groups/v3g/consumers/one/assignments/none/partitions/0", 40403,
             "ConsumerAssignmentsResource getConsumerAssignment_nonExistingConsumerAssignment",
             "404/404"),
            ("consumer-groups/none/lags", 40405,
             "ConsumerLagsResource listConsumerLags_nonExistingConsumerGroup", "404/404"),
            ("consumer-groups/v3g/lags/empty/partitions/0", 40403,
             "ConsumerLagsResource getConsumerLag_nonExistingOffsets", "404/404"),
            ("consumer-groups/none/lags/t/partitions/0", 40405,
             "ConsumerLagsResource getConsumerLag_nonExistingConsumerGroup", "404/404"),
            ("consumer-groups/none/lag-summary", 40405,
             "ConsumerGroupLagSummariesResource "
             "getConsumerGroupLagSummary_nonExistingConsumerGroup",
             "404/404"),
        )
    ),
    Case("an offset type that is none", V3, f"GET {TOPICS}/t/partitions/0/offset?offset_type=foo",
         400, 40005, suite("ListPartitionOffsetsAction getPartition_InvalidOffsetType"),
         there="404", differs="`offset_type`"),
    # ---- topics are made, changed and deleted
    Case("a topic is made", V3, f"POST {TOPICS}", 201, created("v3-made"),
         suite("TopicsResource createTopic_nonExistingTopic_returnsCreatedTopic"), type=JSON,
         body=new("v3-made"), media=JSON),
    Case("a topic is made with configs", V3, f"POST {TOPICS}", 201, created("v3-configs"),
         suite("TopicsResource createAndDelete_nonExisting"), type=JSON,
         body=new("v3-configs", configs=[{"name": "cleanup.policy", "value": "compact"}])),
    Case("a topic is made as to its name alone", V3, f"POST {TOPICS}", 201, created("v3-name"),
         "confluent-openapi CreateTopicRequestData", body={"topic_name": "v3-name"}, type=JSON),
    Case("a topic is tried", V3, f"POST {TOPICS}", 200, created("v3-tried"),
         suite("TopicsResource validateOnlyCreateTopic_nonExistingTopic"), type=JSON,
         body=new("v3-tried", validate_only=True)),
    Case("a topic is made with its replicas", V3, f"POST {TOPICS}", 201,
         {"topic_name": "v3-replicas", "partitions_count": 2},
         suite("TopicsResource createTopic_nonExistingTopic_customReplicasAssignments"), type=JSON,
         body={"topic_name": "v3-replicas", "replicas_assignments": [
             {"partition_id": number, "broker_ids": [1]} for number in range(2)]}),
    Case("a topic is made that exists", V3, f"POST {TOPICS}", 400, 40002,
         suite("TopicsResource createTopic_existingTopic"), body=new("t"), type=JSON),
    Case("a topic is tried that exists", V3, f"POST {TOPICS}", 400, 40002,
         suite("TopicsResource validateOnlyCreateTopic_existingTopic"), type=JSON,
         body=new("t", validate_only=True)),
    Case("a topic is made of more replicas than brokers", V3, f"POST {TOPICS}", 400, 40002,
         "confluent-page POST /clusters/{cluster_id}/topics", type=JSON,
         body={"topic_name": "v3-three", "replication_factor": 3}, differs="`replication_factor`"),
    Case("a topic is made without a body", V3, f"POST {TOPICS}", 422, 42206,
         suite("TopicsResource createTopic_withoutRequestBody"), body=b"", type=JSON),
    Case("a topic is made of what is no JSON", V3, f"POST {TOPICS}", 400, 400,
         "confluent JsonParsingErrorTest unparseableRequestReturnsBadRequest", body=b"foobar",
         type=JSON),
    Case("a topic is made without a name", V3, f"POST {TOPICS}", 400, 400,
         "confluent JsonParsingErrorTest invalidRequestReturnsBadRequest", body={}, type=JSON),
    Case("a topic is made of an unknown field", V3, f"POST {TOPICS}", 422, 422,
         suite("ProduceBatchAction produceWithInvalidData"), type=JSON,
         body={"topic_name": "x", "records": {}}),
    Case("a topic is made of a wrong type", V3, f"POST {TOPICS}", 400, 400,
         "confluent JsonParsingErrorTest invalidRequestReturnsBadRequest", type=JSON,
         body={"topic_name": "x", "partitions_count": "many"}),
    Case("a topic is made in another type", V3, f"POST {TOPICS}", 415, 415,
         "confluent-openapi createKafkaTopic", body=b"{}", type="text/plain"),
    Case("a topic is deleted", V3, f"DELETE {TOPICS}/{{t}}", 204, None,
         suite("TopicsResource deleteTopic_existingTopic")),
    Case("an unknown topic is deleted", V3, f"DELETE {TOPICS}/none", 404, 40403,
         suite("TopicsResource deleteTopic_nonExistingTopic"), accept=JSON),
    Case("partitions are added", V3, f"PATCH {TOPICS}/{{t}}", 200,
         {"topic_name": "{t}", "partitions_count": 3},
         suite("TopicsResource updateTopicPartitions_IncreasePartitionsCount"), type=JSON,
         body={"partitions_count": 3}),
    *(
        Case(f"partitions are made {words}", V3, f"PATCH {TOPICS}/{{t}}", 400, 40002,
             suite(f"TopicsResource {source}"), body={"partitions_count": count}, type=JSON)
        for words, count, source in (
            ("fewer", 1, "updateTopicPartitions_decreasePartitionsCount"),
            ("as many", 2, "updateTopicPartitions_samePartitionsCount"),
        )
    ),
    Case("partitions of an unknown topic are added", V3, f"PATCH {TOPICS}/none", 404, 40403,
         suite("TopicsResource updateTopicPartitions_topicDoesntExist"), type=JSON,
         body={"partitions_count": 1}),
    # ---- configs are changed
    Case("a config is set", V3, f"PUT {CONFIGS}/cleanup.policy", 204, None,
         suite("TopicConfigsResource getUpdateReset_withExistingConfig"), type=JSON,
         body={"value": "compact"}),
    Case("a config that was set", V3, f"GET {CONFIGS}/cleanup.policy", 200,
         {"value": "compact", "is_default": False, "source": "DYNAMIC_TOPIC_CONFIG"},
         suite("TopicConfigsResource getUpdateReset_withExistingConfig"),
         given=((f"PUT {CONFIGS}/cleanup.policy", {"value": "compact"}),)),
    Case("a config is reset", V3, f"DELETE {CONFIGS}/cleanup.policy", 204, None,
         suite("TopicConfigsResource getUpdateReset_withExistingConfig"),
         given=((f"PUT {CONFIGS}/cleanup.policy", {"value": "compact"}),)),
    Case("a config that was reset", V3, f"GET {CONFIGS}/cleanup.policy", 200, POLICY,
         suite("TopicConfigsResource getUpdateReset_withExistingConfig"),
         given=((f"PUT {CONFIGS}/cleanup.policy", {"value": "compact"}),
                (f"DELETE {CONFIGS}/cleanup.policy", None))),
    *(
        Case(f"{words} is {done}", V3, f"{method} {{c}}/{path}", 404, code, suite(source),
             body=None if method == "DELETE" else {"value": "compact"}, type=JSON)
        for words, path, code, test in (
            ("an unknown config", "topics/t/configs/foobar", 404, "nonExistingConfig"),
            ("a config of an unknown topic", "topics/none/configs/cleanup.policy", 40403,
             "nonExistingTopic"),
            ("an unknown config of a broker", "brokers/1/configs/foobar", 404, "nonExistingConfig"),
            ("a config of an unknown broker", "brokers/foobar/configs/compression.type", 404,
             "nonExistingBroker"),
        )
        for method, done, verb in (("PUT", "set", "update"), ("DELETE", "reset", "reset"))
        for source in (
            f"{'Topic' if path[0] == 't' else 'Broker'}ConfigsResource {verb}_{test}",)
    ),
    Case("configs are altered", V3, f"POST {CONFIGS}:alter", 204, None,
         suite("TopicConfigsResource alterConfigBatch_withExistingConfig"), body=COMPACT,
         type=JSON),
    Case("a config that was altered", V3, f"GET {CONFIGS}/compression.type", 200,
         {"value": "gzip", "source": "DYNAMIC_TOPIC_CONFIG"},
         suite("TopicConfigsResource alterConfigBatch_withExistingConfig"),
         given=((f"POST {CONFIGS}:alter", COMPACT),)),
    Case("configs of many topics are altered", V3, f"POST {TOPICS}/-/configs:alter", 204, None,
         suite("TopicConfigsResource alterMultipleTopicsConfigsBatch_withExistingConfigs"),
         body={"data": [{"topic_name": "{t}", "configs": COMPACT["data"]}]}, type=JSON),
    Case("configs of many topics are tried", V3, f"POST {TOPICS}/-/configs:alter", 204, None,
         suite("TopicConfigsResource alterMultipleTopicsConfigsBatch_validateOnly"), type=JSON,
         body={"validate_only": True,
               "data": [{"topic_name": "t", "configs": COMPACT["data"]}]}),
    Case("configs of one topic of many are wrong", V3, f"POST {TOPICS}/-/configs:alter", 207,
         {"failures": [{"topic_name": "t", "error_code": int, "message": str}]},
         suite("TopicConfigsResource alterMultipleTopicsConfigsBatch_partialInvalidConfig"),
         type=JSON, body={"data": [
             {"topic_name": "{t}", "configs": COMPACT["data"]},
             {"topic_name": "t", "configs": [{"name": "retention.ms", "value": "x"}]}]}),
    *(
        Case(f"configs of many topics are altered: an unknown {words}", V3,
             f"POST {TOPICS}/-/configs:alter", 404, code,
             suite(f"TopicConfigsResource alterMultipleTopicsConfigsBatch_{source}"), type=JSON,
             body={"data": [{"topic_name": topic, "configs": [{"name": name, "value": "1"}]}]})
        for words, code, source, topic, name in (
            ("config", 404, "nonExistingConfig", "t", "foobar"),
            ("topic", 40403, "nonExistingTopic", "none", "retention.ms"),
        )
    ),
    Case("configs of a broker are altered", V3, "POST {c}/brokers/1/configs:alter", 204, None,
         suite("BrokerConfigsResource alterConfigBatch_withExistingConfig"), type=JSON,
         body={"data": [{"name": "log.retention.ms", "operation": "DELETE"}]}),
    Case("configs of the cluster are altered", V3, "POST {c}/broker-configs:alter", 204, None,
         suite("ClusterConfigsResource alterConfigBatch_withExistingConfig"), type=JSON,
         body={"data": [{"name": "log.retention.ms", "operation": "DELETE"}]}),
    Case("a config of a broker is reset", V3, "DELETE {c}/brokers/1/configs/log.retention.bytes",
         204, None, suite("BrokerConfigsResource updateAndReset_existingConfig")),
    Case("a config of another type", V3, f"PUT {TOPICS}/t/configs/cleanup.policy", 400, 400,
         "confluent JsonParsingErrorTest invalidRequestReturnsBadRequest", body={"value": [5]},
         type=JSON),
    # ---- what one node has not
    *(
        Case(f"{request.split()[0]} {request.split()[1]}", V3,
             f"{request.split()[0]} {{c}}/{request.split()[1]}", 501, 501, suite(source),
             body=None if request.startswith("GET") else {}, type=JSON, there=there,
             differs=NO_NODES)
        for request, source, there in (
            ("GET acls", "AclsResource", "200"),
            ("POST acls", "AclsResource", "201"),
            ("DELETE acls?resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY",
             "AclsResource", "200"),
            ("GET topics/-/partitions/-/reassignment",
             "ListAllReassignmentsAction listAllReassignments_returnsReassignments", "200"),
            ("GET topics/t/partitions/-/reassignment",
             "SearchReassignmentsByTopicAction searchReassignmentsByTopic_returns", "200"),
            ("GET topics/t/partitions/0/reassignment",
             "GetReassignmentAction getReassignment_returnsReassignment", "200, or 404"),
        )
    ),
)  # fmt: skip
