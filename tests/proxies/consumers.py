"""Consumer instances: creation, subscription, assignment, positions, commits."""

from __future__ import annotations

from tests.proxies.case import (
    BINARY,
    CONFLUENT,
    CONSUMERS,
    JSON,
    KAFKA_JSON,
    KARAPACE,
    REDPANDA,
    STRIMZI,
    V2,
    Case,
    at,
    by_hand,
    of,
)

MADE = {"instance_id": str, "base_uri": str}
SUBSCRIPTION = "POST {i}/subscription"
POLLED = ("GET {i}/records?timeout=0", None)
BRIDGE_CODES = "error body"
CREATION = "a config of a consumer out of range"
WORDS = "numbers and flags that are sent as texts"
COMMITTED = "GET {i}/offsets"
UNKNOWN = "/consumers/g/instances/none"


def made(dialect: str, name: str, **configs: object) -> dict[str, object]:
    """The body of a creation as the dialect's clients send it."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return {**CONSUMERS[dialect], "name": name, **named}


def taken(name: str) -> tuple[str, object]:
    """An instance of that name is there."""
    return (f"POST /consumers/{name}", {"name": name})


CASES = (
    # ---- creation
    *(
        Case("an instance", dialect, f"POST /consumers/made-{dialect}", 200,
             {"instance_id": dialect, "base_uri": str}, source, body=made(dialect, dialect),
             type=V2, accept=V2, media=V2)
        for dialect, source in (
            (CONFLUENT, "confluent AbstractConsumerTest createConsumerInstance"),
            (STRIMZI, "strimzi ConsumerIT createConsumer"),
            (REDPANDA, "redpanda test_create_consumer_validation"),
            (KARAPACE, "karapace test_rest_consumer test_create_and_delete"),
        )
    ),
    Case("an instance behind a slash", KARAPACE, "POST /consumers/made-slash/", 200, MADE,
         "karapace test_rest_consumer test_create_and_delete", body=CONSUMERS[KARAPACE],
         type=KAFKA_JSON),
    Case("an instance without a name", CONFLUENT, "POST /consumers/unnamed", 200, MADE,
         "confluent-page POST /consumers/(group_name)", body={}, type=V2),
    Case("an instance without a body", CONFLUENT, "POST /consumers/unnamed", 200, MADE,
         "confluent-code resources/v2/ConsumersResource", type=V2),
    Case("an instance without a name", STRIMZI, "POST /consumers/unnamed", 200, MADE,
         "strimzi ConsumerIT createConsumerEmptyBody", body={}, type=V2),
    Case("an instance by its id", CONFLUENT, "POST /consumers/by-id", 200, {"instance_id": "one"},
         "confluent-code entities/v2/CreateConsumerInstanceRequest", body={"id": "one"}, type=V2),
    Case("texts for numbers and flags", REDPANDA, "POST /consumers/texts", 200, MADE,
         "redpanda test_create_consumer_validation", type=V2,
         body={"fetch.min.bytes": "1", "consumer.request.timeout.ms": "100",
               "auto.commit.enable": "false"}),
    Case("numbers and flags", STRIMZI, "POST /consumers/typed", 200, MADE,
         "strimzi ConsumerIT createConsumerFetchMinBytes", type=V2,
         body={"fetch.min.bytes": 100, "consumer.request.timeout.ms": 100,
               "enable.auto.commit": True}),
    *(
        Case(f"a text for {name}", STRIMZI, "POST /consumers/texts", 200, MADE,
             f"strimzi ConsumerIT {source}", body={name: value}, type=V2, there="400/400",
             differs=WORDS)
        for name, value, source in (
            ("enable.auto.commit", "true", "createConsumerEnableAutoCommit"),
            ("fetch.min.bytes", "100", "createConsumerFetchMinBytes"),
            ("consumer.request.timeout.ms", "100", "createConsumerRequestTimeoutMs"),
        )
    ),
    *(
        Case(f"a word for {name}", STRIMZI, "POST /consumers/wrong", 422, 422,
             f"strimzi ConsumerIT {source}", body={name: "foo"}, type=V2, there="400/400",
             differs="a body of a consumer's route of the wrong shape")
        for name, source in (
            ("enable.auto.commit", "createConsumerWithWrongEnableAutoCommit"),
            ("fetch.min.bytes", "createConsumerWithWrongFetchMinBytes"),
            ("consumer.request.timeout.ms", "createConsumerRequestTimeoutMs"),
        )
    ),
    *(
        Case(f"an unknown {name}", STRIMZI, "POST /consumers/wrong", 422, 42204,
             f"strimzi ConsumerIT {source}", body={name: "foo"}, type=V2, there="422/422",
             differs=BRIDGE_CODES)
        for name, source in (
            ("format", "createConsumerWrongFormat"),
            ("isolation.level", "createConsumerWithWrongIsolationLevel"),
            ("auto.offset.reset", "createConsumerWithWrongAutoOffsetReset"),
        )
    ),
    Case("an unknown config", STRIMZI, "POST /consumers/wrong", 422, 422,
         "strimzi ConsumerIT createConsumerWithNotExistingParameter", body={"foo": "bar"}, type=V2,
         there="400/400", differs="an unknown config of a consumer"),
    Case("an unknown auto.offset.reset", CONFLUENT, "POST /consumers/wrong", 422, 42204,
         "confluent ConsumerBinaryTest testInvalidKafkaConsumerConfig", type=V2, media=V2,
         body={"format": "binary", "auto.offset.reset": "bad-config"}),
    Case("an unknown format", KARAPACE, "POST /consumers/wrong", 422, 42204,
         "karapace-code consumer_manager _validate_create_consumer", type=KAFKA_JSON,
         body={"format": "foo"}),
    Case("a format with schemas", KARAPACE, "POST /consumers/wrong", 422, 42204,
         "karapace test_rest_consumer test_create_and_delete", body={"format": "avro"},
         type=KAFKA_JSON, there="200", differs="avro, jsonschema, protobuf"),
    Case("fetch.min.bytes below its least", KARAPACE, "POST /consumers/wrong", 422, 42204,
         "karapace test_rest_consumer test_create_and_delete", type=KAFKA_JSON,
         body=made(KARAPACE, "w", fetch_min_bytes=-10)),
    Case("fetch.min.bytes above its most", CONFLUENT, "POST /consumers/wrong", 422, 42204,
         "confluent-code Errors INVALID_CONSUMER_CONFIG_CONSTRAINT", type=V2,
         body={"fetch.min.bytes": 10_000_001}, there="422/40001", differs=CREATION),
    *(
        Case("a name that is taken", dialect, f"POST /consumers/taken-{dialect}", 409, 40902,
             source, body={"name": f"taken-{dialect}"}, type=V2, given=(taken(f"taken-{dialect}"),),
             there=there, differs=BRIDGE_CODES if there else "")
        for dialect, source, there in (
            (CONFLUENT, "confluent ConsumerBinaryTest testDuplicateConsumerID", ""),
            (STRIMZI, "strimzi ConsumerIT consumerAlreadyExistsTest", "409/409"),
            (REDPANDA, "redpanda test_create_consumer_validation", ""),
            (KARAPACE, "karapace test_rest_consumer test_create_and_delete", ""),
        )
    ),
    Case("no Accept", REDPANDA, "POST /consumers/typeless", 200, MADE,
         "redpanda test_create_consumer_validation", body={}, type=V2, media=V2),
    Case("no Content-Type", REDPANDA, "POST /consumers/typeless", 200, MADE,
         "redpanda test_create_consumer_validation", body=b"{}", accept=V2, there="415/415",
         differs="a missing Content-Type of a consumer's route"),
    Case("Accept of records", REDPANDA, "POST /consumers/typeless", 200, MADE,
         "redpanda test_create_consumer_validation", body={}, type=V2, accept=BINARY, media=V2,
         there="406/406", differs="Accept of what is no poll and no fetch"),
    Case("Content-Type: text/plain", CONFLUENT, "POST /consumers/typeless", 415, 415,
         "confluent-code resources/v2/ConsumersResource", body=b"{}", type="text/plain"),
    Case("no group", REDPANDA, "POST /consumers/", 404, 404,
         "redpanda test_create_consumer_validation", body={}, type=V2),
    Case("a control character in the name", REDPANDA, "POST /consumers/control", 400, 40002,
         "redpanda test_invalid_member_id", body=made(REDPANDA, "my\nconsumer"), type=V2),
    Case("a control character in the group", REDPANDA, "POST /consumers/My%0Dconsumer", 400, 40002,
         "redpanda test_invalid_group_name", body=made(REDPANDA, "test"), type=V2),
    *(
        Case(f"behind a proxy: {words}", STRIMZI, f"POST /consumers/forwarded-{number}", 200,
             {"base_uri": f"https://gate:443{prefix}/consumers/forwarded-{number}/instances/one"},
             f"strimzi ConsumerIT {source}", body={"name": "one"}, type=V2, headers=headers)
        for number, (words, source, headers, prefix) in enumerate((
            ("X-Forwarded", "createConsumerWithForwardedHeaders",
             {"X-Forwarded-Host": "gate:443", "X-Forwarded-Proto": "https"}, ""),
            ("Forwarded", "createConsumerWithForwardedHeader",
             {"Forwarded": "host=gate:443;proto=https"}, ""),
            ("two Forwarded", "createConsumerWithMultipleForwardedHeaders",
             {"Forwarded": "host=gate:443;proto=https, host=other:886;proto=http"}, ""),
            ("a path", "createConsumerWithForwardedPathHeader",
             {"Forwarded": "host=gate:443;proto=https",
              "X-Forwarded-Path": "/my-bridge/consumers/forwarded-3"}, "/my-bridge"),
        ))
    ),
    Case("behind a proxy without a port", STRIMZI, "POST /consumers/forwarded-port", 200,
         {"base_uri": "http://gate/consumers/forwarded-port/instances/one"},
         "strimzi ConsumerIT createConsumerWithForwardedHeaderDefaultPort", body={"name": "one"},
         type=V2, headers={"Forwarded": "host=gate;proto=http"}, there="200, with the port 80",
         differs="the port in `base_uri`"),
    Case("behind a proxy of another protocol", STRIMZI, "POST /consumers/forwarded-mqtt", 200, MADE,
         "strimzi ConsumerIT createConsumerWithForwardedHeaderWrongProto", body={"name": "one"},
         type=V2, headers={"Forwarded": "host=gate;proto=mqtt"}, there="500/500",
         differs="a forwarded protocol that is not HTTP"),
    # ---- the end
    *(
        Case("an instance is deleted", dialect, "DELETE {i}", 204, None, source, type=V2)
        for dialect, source in (
            (CONFLUENT, "confluent ConsumerBinaryTest testDeleteConsumer"),
            (STRIMZI, "strimzi-openapi deleteConsumer"),
            (REDPANDA, "redpanda test_remove_consumer_validation"),
            (KARAPACE, "karapace test_rest_consumer test_create_and_delete"),
        )
    ),
    Case("an instance is deleted behind a slash", KARAPACE, "DELETE {i}/", 204, None,
         "karapace test_rest_consumer test_create_and_delete"),
    Case("an instance is deleted, no Content-Type", REDPANDA, "DELETE {i}", 204, None,
         "redpanda test_remove_consumer_validation", accept=V2, there="415/415",
         differs="bodies on GET and DELETE, and their Content-Type"),
    Case("an instance is deleted, Accept of records", REDPANDA, "DELETE {i}", 204, None,
         "redpanda test_remove_consumer_validation", type=V2, accept=BINARY, there="406/406",
         differs="Accept of what is no poll and no fetch"),
    Case("an instance is deleted with a body", STRIMZI, "DELETE {i}", 204, None,
         "strimzi-openapi deleteConsumer", body={}, type="text/plain"),
    *(
        Case("an unknown instance is deleted", dialect, f"DELETE {UNKNOWN}", 404, 40403, source,
             type=V2, there=there, differs=BRIDGE_CODES if there else "")
        for dialect, source, there in (
            (CONFLUENT, "confluent-code Errors CONSUMER_INSTANCE_NOT_FOUND", ""),
            (STRIMZI, "strimzi-openapi deleteConsumer", "404/404"),
            (REDPANDA, "redpanda test_remove_consumer_validation", ""),
            (KARAPACE, "karapace test_rest_consumer test_create_and_delete", ""),
        )
    ),
    *(
        Case(f"a control character in the {words} of a deletion", REDPANDA, f"DELETE {path}", 400,
             40002, "redpanda test_bad_arguments_delete_consumer", type=V2)
        for words, path in (("group", "/consumers/My%02group/instances/a"),
                            ("instance", "/consumers/group/instances/my%7Finstance"))
    ),
    # ---- subscription
    *(
        Case("topics", dialect, SUBSCRIPTION, 204, None, source, body={"topics": ["t", "json"]},
             type=media, accept=V2)
        for dialect, source, media in (
            (CONFLUENT, "confluent AbstractConsumerTest startConsumeMessages", V2),
            (STRIMZI, "strimzi ConsumerSubscriptionIT listConsumerSubscriptions", V2),
            (REDPANDA, "redpanda test_subscribe_consumer_validation", V2),
            (KARAPACE, "karapace test_rest_consumer test_subscription", BINARY),
        )
    ),
    Case("topics behind a slash", KARAPACE, "POST {i}/subscription/", 204, None,
         "karapace test_rest_consumer test_subscription", body={"topics": ["t"]}, type=BINARY),
    Case("a pattern", KARAPACE, SUBSCRIPTION, 204, None,
         "karapace test_rest_consumer test_subscription", body={"topic_pattern": "j.*"}, type=JSON),
    Case("no Content-Type of a subscription", REDPANDA, SUBSCRIPTION, 204, None,
         "redpanda test_subscribe_consumer_validation", body=b'{"topics":["t"]}', accept=V2,
         there="415/415", differs="a missing Content-Type of a consumer's route"),
    Case("Accept of records at a subscription", REDPANDA, SUBSCRIPTION, 204, None,
         "redpanda test_subscribe_consumer_validation", body={"topics": ["t"]}, type=V2,
         accept=BINARY, there="406/406", differs="Accept of what is no poll and no fetch"),
    *(
        Case(f"topics of an unknown {words}", REDPANDA, f"POST {path}/subscription", 404, 40403,
             "redpanda test_subscribe_consumer_validation", body={"topics": ["t"]}, type=V2)
        for words, path in (("group", "/consumers/none/instances/i"), ("instance", UNKNOWN))
    ),
    Case("topics of an unknown instance", STRIMZI, f"POST {UNKNOWN}/subscription", 404, 40403,
         "strimzi ConsumerSubscriptionIT subscriptionConsumerDoesNotExistBecauseNotCreated",
         body={"topics": ["t"]}, type=V2, there="404/404", differs=BRIDGE_CODES),
    Case("topics and a pattern", STRIMZI, SUBSCRIPTION, 409, 40903,
         "strimzi ConsumerSubscriptionIT subscribeExclusiveTopicAndPattern", type=V2,
         body={"topics": ["t"], "topic_pattern": "x"}, there="409/409", differs=BRIDGE_CODES),
    Case("neither topics nor a pattern", STRIMZI, SUBSCRIPTION, 422, 422,
         "strimzi ConsumerSubscriptionIT subscribeExclusiveTopicAndPattern", body={}, type=V2),
    Case("topics and a pattern", KARAPACE, SUBSCRIPTION, 409, 40903,
         "karapace-code consumer_manager set_subscription", type=V2,
         body={"topics": ["t"], "topic_pattern": "x"}),
    Case("neither topics nor a pattern", KARAPACE, SUBSCRIPTION, 422, 422,
         "karapace-code consumer_manager set_subscription", body={}, type=V2, there="409/40903",
         differs="a subscription to nothing"),
    Case("topics that are a text", KARAPACE, SUBSCRIPTION, 422, 422,
         "karapace test_rest_consumer test_subscription", body={"topics": "t"}, type=V2),
    Case("a pattern that is a list", KARAPACE, SUBSCRIPTION, 422, 422,
         "karapace test_rest_consumer test_subscription", body={"topic_pattern": ["a"]}, type=V2),
    Case("a control character in a topic", REDPANDA, SUBSCRIPTION, 400, 40002,
         "redpanda test_invalid_subscribe_consumer", body={"topics": ["test\ntopic"]}, type=V2),
    *(
        Case(f"a control character in the {words} of a subscription", REDPANDA,
             f"POST {path}/subscription", 400, 40002, "redpanda test_invalid_subscribe_consumer",
             body={"topics": ["t"]}, type=V2)
        for words, path in (("group", "/consumers/my%03group/instances/a"),
                            ("instance", "/consumers/a/instances/my%04instance"))
    ),
    Case("topics that are none", STRIMZI, SUBSCRIPTION, 204, None,
         "strimzi ConsumerSubscriptionIT subscriptionConsumerEmptyTopics", body={"topics": []},
         type=V2, given=(of("t"),)),
    Case("topics behind an assignment", CONFLUENT, SUBSCRIPTION, 409, 40903,
         "confluent-page POST /consumers/(group_name)/instances/(instance)/subscription",
         body={"topics": ["t"]}, type=V2, given=(by_hand(at("t")),)),
    Case("what is subscribed to", CONFLUENT, "GET {i}/subscription", 200, {"topics": ["t"]},
         "confluent-page GET /consumers/(group_name)/instances/(instance)/subscription",
         given=(of("t"),), media=V2),
    Case("what is subscribed to", STRIMZI, "GET {i}/subscription", 200,
         {"topics": ["empty", "json"], "partitions": [{"empty": [0, 1]}, {"json": [0]}]},
         "strimzi ConsumerSubscriptionIT listConsumerSubscriptions", given=(of("empty", "json"),)),
    Case("what is subscribed to behind nothing", STRIMZI, "GET {i}/subscription", 200,
         {"topics": [], "partitions": []},
         "strimzi ConsumerSubscriptionIT subscriptionConsumerEmptyTopics",
         given=(of("t"), ("POST {i}/subscription", {"topics": []}))),
    Case("what is subscribed to before", KARAPACE, "GET {i}/subscription", 200, {"topics": []},
         "karapace test_rest_consumer test_subscription"),
    Case("what is subscribed to behind the end", KARAPACE, "GET {i}/subscription/", 200,
         {"topics": []}, "karapace test_rest_consumer test_subscription",
         given=(of("t"), ("DELETE {i}/subscription", None))),
    Case("what is subscribed to by a pattern", KARAPACE, "GET {i}/subscription", 200,
         {"topics": frozenset(("json",))}, "karapace test_rest_consumer test_subscription",
         given=(("POST {i}/subscription", {"topic_pattern": "jso.*"}), POLLED)),
    Case("what is subscribed to behind an assignment", STRIMZI, "GET {i}/subscription", 200,
         {"topics": ["t"], "partitions": [{"t": [0, 1]}]},
         "strimzi ConsumerSubscriptionIT assignEmptyAfterSubscriptionTest",
         given=(by_hand(at("t"), at("t", 1)),)),
    Case("what is subscribed to behind an assignment of nothing", STRIMZI, "GET {i}/subscription",
         200, {"topics": [], "partitions": []},
         "strimzi ConsumerSubscriptionIT assignEmptyAfterSubscriptionTest",
         given=(by_hand(at("t")), by_hand())),
    *(
        Case("the end of a subscription", dialect, "DELETE {i}/subscription", 204, None, source,
             given=(of("t"),))
        for dialect, source in (
            (CONFLUENT,
             "confluent-page DELETE /consumers/(group_name)/instances/(instance)/subscription"),
            (STRIMZI, "strimzi-openapi unsubscribe"),
            (KARAPACE, "karapace test_rest_consumer test_subscription"),
        )
    ),
    Case("the end of an unknown instance's subscription", STRIMZI, f"DELETE {UNKNOWN}/subscription",
         404, 40403, "strimzi ConsumerSubscriptionIT unsubscribeConsumerNotFound",
         there="404/404", differs=BRIDGE_CODES),
    # ---- assignment
    *(
        Case("partitions", dialect, "POST {i}/assignments", 204, None, source,
             body={"partitions": [at("t"), at("t", 1)]}, type=media)
        for dialect, source, media in (
            (CONFLUENT,
             "confluent-page POST /consumers/(group_name)/instances/(instance)/assignments", V2),
            (STRIMZI, "strimzi ConsumerSubscriptionIT assignEmptyAfterSubscriptionTest", V2),
            (KARAPACE, "karapace test_rest_consumer test_assignment", KAFKA_JSON),
        )
    ),
    Case("partitions behind a slash", KARAPACE, "POST {i}/assignments/", 204, None,
         "karapace test_rest_consumer test_assignment", body={"partitions": [at("t")]},
         type=BINARY),
    Case("what is assigned before", KARAPACE, "GET {i}/assignments", 200, {"partitions": []},
         "karapace test_rest_consumer test_assignment"),
    Case("what is assigned", KARAPACE, "GET {i}/assignments/", 200, {"partitions": [at("t")]},
         "karapace test_rest_consumer test_assignment", given=(by_hand(at("t")),)),
    Case("what is assigned", CONFLUENT, "GET {i}/assignments", 200, {"partitions": [at("t", 1)]},
         "confluent-page GET /consumers/(group_name)/instances/(instance)/assignments",
         given=(by_hand(at("t", 1)),), media=V2),
    Case("partitions behind a subscription", STRIMZI, "POST {i}/assignments", 409, 40903,
         "strimzi ConsumerSubscriptionIT assignAfterSubscriptionTest",
         body={"partitions": [at("t")]}, type=V2, given=(of("t"),), there="409/409",
         differs=BRIDGE_CODES),
    *(
        Case("partitions behind a subscription", dialect, "POST {i}/assignments", 409, 40903,
             source, body={"partitions": [at("t")]}, type=V2, given=(of("t"),))
        for dialect, source in (
            (KARAPACE, "karapace test_rest_consumer test_subscription"),
            (CONFLUENT,
             "confluent-page POST /consumers/(group_name)/instances/(instance)/assignments"),
        )
    ),
    Case("a topic that is to come", STRIMZI, "POST {i}/assignments", 204, None,
         "strimzi ConsumerIT receiveSimpleMessageTopicCreatedAfterAssignTest",
         body={"partitions": [at("to-come")]}, type=V2),
    Case("a topic that is not there", CONFLUENT, "POST {i}/assignments", 404, 40401,
         "confluent-code v2/KafkaConsumerState", body={"partitions": [at("none")]}, type=V2,
         there="204", differs="an assignment of a topic that does not exist"),
    Case("partitions of an unknown instance", STRIMZI, f"POST {UNKNOWN}/assignments", 404, 40403,
         "strimzi-openapi assign", body={"partitions": [at("t")]}, type=V2, there="404/404",
         differs=BRIDGE_CODES),
    # ---- positions
    *(
        Case(f"a position: {words}", dialect, f"POST {{i}}/positions{tail}", 204, None, source,
             body=body, type=V2, given=(by_hand(at("t")),))
        for words, tail, body in (
            ("an offset", "", {"offsets": [at("t", offset=1)]}),
            ("the beginning", "/beginning", {"partitions": [at("t")]}),
            ("the end", "/end", {"partitions": [at("t")]}),
        )
        for dialect, source in (
            (CONFLUENT,
             "confluent-page POST /consumers/(group_name)/instances/(instance)/positions"),
            (STRIMZI, "strimzi SeekIT"),
            (KARAPACE, "karapace test_rest_consumer test_seek"),
        )
    ),
    *(
        Case(f"a position behind a slash: {tail or 'an offset'}", KARAPACE,
             f"POST {{i}}/positions{tail}/", 204, None, "karapace test_rest_consumer test_seek",
             body=body, type=KAFKA_JSON, given=(by_hand(at("t")),))
        for tail, body in (("", {"offsets": [at("t", offset=10)]}),
                           ("/beginning", {"partitions": [at("t")]}),
                           ("/end", {"partitions": [at("t")]}))
    ),
    Case("a position: a time", CONFLUENT, "POST {i}/positions", 204, None,
         "confluent SeekToTimestampTest testConsumeOnlyValues", type=V2, given=(by_hand(at("t")),),
         body={"timestamps": [at("t", timestamp="2020-01-01T00:00:00Z")]}),
    Case("a position: a time later than every record", CONFLUENT, "POST {i}/positions", 204, None,
         "confluent-code v2/KafkaConsumerState seekToTimestamp", type=V2, there="500/500",
         body={"timestamps": [at("t", timestamp="2999-01-01T00:00:00Z")]},
         given=(by_hand(at("t")),), differs="a position by a time later than every record"),
    Case("records from a position on", STRIMZI, "GET {i}/records?timeout=0", 200,
         [{"offset": 2, "value": {"n": 2}}], "strimzi SeekIT seekToOffsetAndReceive",
         accept=KAFKA_JSON,
         given=(of("json"), POLLED, ("POST {i}/positions", {"offsets": [at("json", offset=2)]}))),
    Case("records from the beginning on", STRIMZI, "GET {i}/records?timeout=0", 200,
         [{"offset": 0}, {}, {}], "strimzi SeekIT seekToBeginningAndReceive", accept=KAFKA_JSON,
         given=(of("json"), POLLED,
                ("POST {i}/positions/beginning", {"partitions": [at("json")]}))),
    Case("records from the end on", STRIMZI, "GET {i}/records?timeout=0", 200, [],
         "strimzi SeekIT seekToEndAndReceive", accept=KAFKA_JSON,
         given=(of("json"), ("POST {i}/positions/end", {"partitions": [at("json")]}))),
    Case("a position of an unknown instance", STRIMZI, f"POST {UNKNOWN}/positions/beginning", 404,
         40403, "strimzi SeekIT seekToNotExistingConsumer", body={"partitions": []}, type=V2,
         there="404/404", differs=BRIDGE_CODES),
    *(
        Case(f"a position of an unassigned topic: {tail or 'an offset'}", STRIMZI,
             f"POST {{i}}/positions{tail}", 404, 40402, f"strimzi SeekIT {source}", body=body,
             type=V2, given=(of("json"),), there="404/404", differs=BRIDGE_CODES)
        for tail, source, body in (
            ("/beginning", "seekToNotExistingTopic", {"partitions": [at("none")]}),
            ("/end", "seekToBeginningMultipleTopicsWithNotSubscribedTopic",
             {"partitions": [at("json"), at("t")]}),
            ("", "seekToOffsetMultipleTopicsWithNotSubscribedTopic",
             {"offsets": [at("json", offset=0), at("t", offset=0)]}),
        )
    ),
    *(
        Case("a position of an unassigned topic", dialect, "POST {i}/positions", 409, 40903, source,
             body={"offsets": [at("w", offset=10)]}, type=V2, given=(by_hand(at("t")),))
        for dialect, source in (
            (KARAPACE, "karapace test_rest_consumer test_seek"),
            (CONFLUENT, "confluent-code resources/v2/ConsumersResource"),
        )
    ),
    Case("a position without its offset", KARAPACE, "POST {i}/positions", 422, 422,
         "karapace-code consumer_manager _assert_has_key", body={"offsets": [at("t")]}, type=V2,
         given=(by_hand(at("t")),), there="500/50001",
         differs="a body of a consumer's route of the wrong shape"),
    # ---- commits
    Case("a commit without a body", CONFLUENT, "POST {i}/offsets/", 200, [],
         "confluent AbstractConsumerTest commitOffsets", type=V2, given=(of("t"), POLLED),
         media=V2),
    Case("a commit of offsets", CONFLUENT, "POST {i}/offsets", 200, [],
         "confluent-page POST /consumers/(group_name)/instances/(instance)/offsets", type=V2,
         body={"offsets": [at("t", offset=1, metadata="m")]}, given=(of("t"),)),
    Case("a commit, async", CONFLUENT, "POST {i}/offsets?async=true", 200, [],
         "confluent-code resources/v2/ConsumersResource", type=V2, given=(of("t"),)),
    Case("a commit of offsets", STRIMZI, "POST {i}/offsets", 204, None,
         "strimzi ConsumerIT commitOffset", body={"offsets": [at("json", offset=1)]}, type=V2,
         given=(of("json"), POLLED)),
    Case("a commit of all", STRIMZI, "POST {i}/offsets", 204, None,
         "strimzi ConsumerIT commitEmptyOffset", body={}, type=V2, given=(of("json"), POLLED)),
    Case("a commit of offsets", REDPANDA, "POST {i}/offsets", 204, None,
         "redpanda test_consumer_group_binary_v2", type=V2, accept=V2,
         body={"partitions": [at("t", offset=0), at("t", 1, offset=0)]}, given=(of("t"),)),
    Case("a commit of offsets", KARAPACE, "POST {i}/offsets", 204, None,
         "karapace test_rest_consumer test_offsets", body={"offsets": [at("t", offset=0)]},
         type=BINARY, given=(by_hand(at("t")),)),
    Case("a commit of all", KARAPACE, "POST {i}/offsets/", 204, None,
         "karapace test_rest_consumer test_offsets_no_payload", body={}, type=BINARY,
         given=(by_hand(at("t")),)),
    Case("a commit of an unknown instance", STRIMZI, f"POST {UNKNOWN}/offsets", 404, 40403,
         "strimzi ConsumerIT offsetsConsumerDoesNotExist", type=V2, there="404/404",
         body={"offsets": [at("t", offset=10)]}, differs=BRIDGE_CODES),
    Case("a commit of a topic of no possible name", REDPANDA, "POST {i}/offsets", 400, 40002,
         "redpanda test_invalid_topic_commit_offset", type=V2,
         body={"partitions": [at("test\ntopic", offset=0)]}),
    *(
        Case(f"a control character in the {words} of {kind}", REDPANDA, f"{method} {path}/offsets",
             400, 40002, f"redpanda {source}", type=V2)
        for method, kind, source in (("POST", "a commit", "test_invalid_topic_commit_offset"),
                                     ("GET", "a look at commits",
                                      "test_invalid_get_consumer_offset"))
        for words, path in (("group", "/consumers/my%03group/instances/a"),
                            ("instance", "/consumers/a/instances/my%04instance"))
    ),
    *(
        Case("what is committed", dialect, COMMITTED, 200,
             {"offsets": [at("t", offset=stored, metadata="m")]}, source, type=V2,
             body={"partitions": [at("t")]},
             given=(by_hand(at("t")),
                    ("POST {i}/offsets", {member: [at("t", offset=2, metadata="m")]})))
        for dialect, source, member, stored in (
            (CONFLUENT, "confluent-page GET /consumers/(group_name)/instances/(instance)/offsets",
             "offsets", 3),
            (REDPANDA, "redpanda test_consumer_group_binary_v2", "partitions", 2),
            (KARAPACE, "karapace test_rest_consumer test_offsets", "offsets", 3),
        )
    ),
    Case("what is committed, as the Bridge stores it", STRIMZI, COMMITTED, 200,
         {"offsets": [at("json", offset=2)]}, "strimzi ConsumerIT commitOffset", type=V2,
         body={"partitions": [at("json")]},
         given=(of("json"), ("POST {i}/offsets", {"offsets": [at("json", offset=2)]}))),
    Case("what is committed of all that was read", KARAPACE, COMMITTED, 200,
         {"offsets": [at("t", offset=3)]},
         "karapace test_rest_consumer test_offsets_no_payload", type=BINARY,
         body={"partitions": [at("t")]},
         given=(by_hand(at("t")), POLLED, ("POST {i}/offsets", {}))),
    Case("what is not committed", REDPANDA, COMMITTED, 200, {"offsets": []},
         "redpanda test_consumer_group_binary_v2", body={"partitions": [at("t")]}, type=V2,
         given=(of("t"),), there="200, offset -1", differs="partitions without a commit"),
    Case("what is committed, without a body", CONFLUENT, COMMITTED, 200, {"offsets": []},
         "confluent-code resources/v2/ConsumersResource", given=(by_hand(at("t")),),
         there="404/40402", differs="`GET .../offsets` without a body"),
    Case("what is committed of a topic of no possible name", REDPANDA, COMMITTED, 400, 40002,
         "redpanda test_invalid_get_consumer_offset", type=V2,
         body={"partitions": [at("test\ntopic")]}),
    Case("v1 consumers", CONFLUENT, "POST /consumers/g/instances/i/topics/t", 404, 404,
         "confluent-page removed with v1", differs="v1 consumers"),
)  # fmt: skip
