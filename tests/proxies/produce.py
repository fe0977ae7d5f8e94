"""Produce of v2."""

from __future__ import annotations

from tests.proxies.case import (
    BINARY,
    CONFLUENT,
    JSON,
    KAFKA_JSON,
    KARAPACE,
    RECEIPT,
    RECEIPTS,
    REDPANDA,
    STRIMZI,
    TEXT,
    V2,
    Case,
    records,
)

OLD_JSON = "application/vnd.kafka.json+json"  # of Karapace alone
LOST = {"partition": None, "offset": None, "error_code": 40402, "error": str, "message": str}
NO_REGISTRY = {
    "error_code": 415,
    "message": "That format needs a schema registry; kafkalog has none. Use binary or json.",
}
ONE_REASON = "every record of a produce failed for one reason"
SHAPE = "a v2 produce of the wrong shape"
TYPES = "avro, jsonschema, protobuf"
REQUESTS = ("POST /topics/w", "POST /topics/w/partitions/0")
THREE = {"records": [{"value": "AA==", "partition": number} for number in range(3)]}


def receipts(*partitions: int) -> dict[str, object]:
    """Of records to these partitions."""
    return {"offsets": [{**RECEIPT, "partition": each} for each in partitions]}


CASES = (
    # ---- what is taken
    *(
        Case(f"{words}, {kind}", CONFLUENT, request, 200, RECEIPTS, f"confluent {source}",
             body={"records": [record]}, type=media, accept=V2, media=V2)
        for words, request in zip(("a topic", "a partition"), REQUESTS, strict=True)
        for kind, record, media, source in (
            ("a value", {"value": "AA=="}, BINARY,
             "TopicsResourceBinaryProduceTest testProduceToTopicOnlyValues"),
            ("a key and a value", {"key": "AA==", "value": "AQ=="}, BINARY,
             "TopicsResourceBinaryProduceTest testProduceToTopicByKey"),
            ("a key and no value", {"key": "AA==", "value": None}, BINARY,
             "TopicsResourceBinaryProduceTest testProduceToTopicWithNullValues"),
            ("a partition in the record", {"value": "AA==", "partition": 0}, BINARY,
             "TopicsResourceBinaryProduceTest testProduceToTopicByPartition"),
            ("a partition and a key", {"key": "AA==", "value": "AA==", "partition": 0}, BINARY,
             "TopicsResourceBinaryProduceTest testProduceToTopicWithPartitionAndKey"),
            ("JSON", {"key": {"foo": None}, "value": {"baz": 53.4, "taz": [45]}}, KAFKA_JSON,
             "JsonProducerTest testProduceToTopicKeyAndValue"),
            ("JSON without a key", {"value": "text"}, KAFKA_JSON,
             "JsonProducerTest testProduceToTopicNoKey"),
        )
    ),
    Case("schema ids without a schema format", CONFLUENT, "POST /topics/w", 200, RECEIPTS,
         "confluent-code entities/v2/ProduceRequest", type=BINARY,
         body={**records("AA=="), "key_schema_id": None, "value_schema_id": 7}),
    *(
        Case(f"{kind} to {request.split()[1]}", KARAPACE, request, 200, RECEIPTS,
             "karapace test_rest test_publish", body=records(value), type=media)
        for request in REQUESTS
        for kind, value, media in (("JSON", {"foo": "bar"}, KAFKA_JSON),
                                   ("bytes", "Zm9vCg==", BINARY))
    ),
    *(
        Case(f"Content-Type: {media}", KARAPACE, "POST /topics/w", 200, RECEIPTS,
             "karapace test_rest test_content_types", body=records("Zm9v"), type=media)
        for media in ("application/vnd.kafka.v1+json", "application/vnd.kafka.binary.v1+json",
                      OLD_JSON, "application/vnd.kafka+json")
    ),
    Case("a topic behind a slash", KARAPACE, "POST /topics/w/", 200, RECEIPTS,
         "karapace test_rest_consumer test_publish_consume_avro", body=records("Zm9v"),
         type=BINARY),
    *(
        Case(f"a record of {kind}", STRIMZI, "POST /topics/w", 200, {"offsets": [RECEIPT]},
             f"strimzi ProducerIT {source}", body={"records": [record]}, type=media, media=V2)
        for kind, record, media, source in (
            ("JSON", {"value": "text"}, KAFKA_JSON, "sendSimpleMessage"),
            ("text", {"value": "text"}, TEXT, "sendTextMessage"),
            ("bytes", {"key": "AA==", "value": "AQ=="}, BINARY, "sendBinaryMessageWithKey"),
            ("a key", {"key": "k", "value": "text"}, KAFKA_JSON, "sendSimpleMessageWithKey"),
            ("an array as key", {"key": ["a", {"b": "c"}], "value": "text"}, KAFKA_JSON,
             "sendSimpleMessageWithArrayKey"),
            ("an array as value", {"value": ["a", {"b": "c"}]}, KAFKA_JSON,
             "sendSimpleMessageWithArrayValue"),
            ("a time", {"value": "text", "timestamp": 1_700_000_000_000}, KAFKA_JSON,
             "sendSimpleMessageWithTimestamp"),
            ("headers", {"value": "text", "headers": [{"key": "k", "value": "AA=="},
                                                      {"key": "k", "value": "AQ=="}]}, KAFKA_JSON,
             "sendSimpleMessageWithHeaders"),
            ("a key and null", {"key": "k", "value": None}, KAFKA_JSON,
             "sendMessageWithNullValueTest"),
            ("nested JSON", {"key": {"id": 123}, "value": {"id": 10, "price": 150}}, KAFKA_JSON,
             "dynamicContentTypeHandling"),
        )
    ),
    Case("records to three partitions", STRIMZI, "POST /topics/w", 200, receipts(0, 1, 2),
         "strimzi ProducerIT sendMessagesToMultiplePartitions", type=KAFKA_JSON,
         body={"records": [{"value": "v", "partition": number} for number in range(3)]}),
    Case("a record to a partition", STRIMZI, "POST /topics/w", 200, receipts(3),
         "strimzi ProducerIT sendSimpleMessageToPartition", body=records("v", partition=3),
         type=KAFKA_JSON),
    Case("a record to the partition in the path", STRIMZI, "POST /topics/w/partitions/1", 200,
         receipts(1), "strimzi ProducerIT sendToOnePartitionTest", body=records("v"),
         type=KAFKA_JSON),
    Case("ten records to one partition", STRIMZI, "POST /topics/{t}", 200,
         {"offsets": [{"partition": 0, "offset": number} for number in range(10)]},
         "strimzi ProducerIT sendMultipleMessages", type=KAFKA_JSON,
         body={"records": [{"value": f"v-{number}", "partition": 0} for number in range(10)]}),
    Case("async", STRIMZI, "POST /topics/w?async=true", 204, None,
         "strimzi ProducerIT sendAsyncMessages", body=records("a", "b", "c"), type=KAFKA_JSON),
    Case("async=false", STRIMZI, "POST /topics/w?async=false", 200, {"offsets": [RECEIPT]},
         "strimzi-openapi send", body=records("v"), type=KAFKA_JSON),
    Case("async=wrong", STRIMZI, "POST /topics/w?async=wrong", 400, 40005,
         "strimzi ProducerIT sendWithWrongAsync", body=records("v"), type=KAFKA_JSON,
         there="400/400", differs="error body"),
    Case("records to three partitions", REDPANDA, "POST /topics/w", 200, receipts(0, 1, 2),
         "redpanda test_produce_topic", body=THREE, type=BINARY, accept=V2, media=V2),
    Case("records without partitions", REDPANDA, "POST /topics/w", 200, {"offsets": [RECEIPT] * 3},
         "redpanda test_produce_topic", body=records("AA==", "AQ==", "Ag=="), type=BINARY,
         accept=V2),
    Case("JSON", REDPANDA, "POST /topics/w", 200, {"offsets": [RECEIPT] * 3},
         "redpanda test_consumer_group_json_v2", type=KAFKA_JSON, accept=V2,
         body=records({"object": ["a"]}, {"object": ["b"]}, {"object": ["c"]}, partition=0)),
    Case("no Accept", REDPANDA, "POST /topics/w", 200, RECEIPTS,
         "redpanda test_produce_topic_validation", body=records("AA=="), type=BINARY),
    Case("Accept of records", REDPANDA, "POST /topics/w", 200, RECEIPTS,
         "redpanda test_produce_topic_validation", body=records("AA=="), type=BINARY, accept=BINARY,
         there="406/406", differs="Accept of what is no poll and no fetch"),
    # ---- types that are not
    *(
        Case(f"no Content-Type: {words}", dialect, "POST /topics/w", 415, 415, source,
             body=b'{"records":[{"value":"AA=="}]}')
        for words, dialect, source in (
            ("415", REDPANDA, "redpanda test_produce_topic_validation"),
            ("415 with the accepted ones", CONFLUENT, "confluent-code resources/v2/TopicsResource"),
        )
    ),
    Case("Content-Type of metadata", REDPANDA, "POST /topics/w", 415, 415,
         "redpanda test_produce_topic_validation", body=records("AA=="), type=V2),
    Case("a Content-Type that none has", STRIMZI, "POST /topics/w", 415, 415,
         "strimzi ProducerIT sendSimpleMessageWithWrongContentType", body=records("v"),
         type="bad-content-type", there="400", differs="no Content-Type, or a form's"),
    *(
        Case(f"Content-Type: {media}", KARAPACE, "POST /topics/w", 415, 415,
             "karapace test_rest test_content_types", body=records("Zm9v"), type=media)
        for media in ("application/vnd.kafka.v3+json", "application/vnd.kafka.binary.v1+foo",
                      "application/vnd.kafka.json+avro", "application/vnd.kafka",
                      "application/vnd.kafka+binary", "application/text", "bar/baz")
    ),
    Case("Content-Type: application/octet-stream", KARAPACE, "POST /topics/w", 415, 415,
         "karapace test_rest test_content_types", body=records("Zm9v"),
         type="application/octet-stream", there="200",
         differs="`application/octet-stream` as Content-Type of a v2 produce"),
    Case("application/json", CONFLUENT, "POST /topics/w", 200, RECEIPTS,
         "confluent-code resources/v2/TopicsResource", body=records({"a": 1}), type=JSON,
         there="415/415", differs="`application/json` as Content-Type of a produce"),
    Case("application/json that is no base64", KARAPACE, "POST /topics/w", 200, RECEIPTS,
         "karapace-code REST_CONTENT_TYPE_RE", body=records("not base64"), type=JSON,
         there="400/400", differs="`application/json` as Content-Type of a produce"),
    *(
        Case(f"a format with schemas: {name}", CONFLUENT, "POST /topics/w", 415, NO_REGISTRY,
             "confluent-code resources/v2/TopicsResource", body=records("x"), there="422/42202",
             type=f"application/vnd.kafka.{name}.v2+json", differs=TYPES)
        for name in ("avro", "jsonschema", "protobuf")
    ),
    *(
        Case(f"avro without a schema of the {part}", KARAPACE, "POST /topics/w", 415, NO_REGISTRY,
             "karapace test_rest test_publish_malformed_requests", body={"records": [{part: {}}]},
             type="application/vnd.kafka.avro.v2+json", there=there, differs=TYPES)
        for part, there in (("key", "422/42201"), ("value", "422/42202"))
    ),
    # ---- bodies that are not
    *(
        Case(f"{words}, {request.split()[1]}", KARAPACE, request, status, status,
             "karapace test_rest test_publish_malformed_requests", body=body, type=media,
             there=there, differs=SHAPE if there else "")
        for request in REQUESTS
        for words, body, media, status, there in (
            ("no records", {"records": []}, KAFKA_JSON, 422, ""),
            ("nothing that is known", {"foo": "bar"}, KAFKA_JSON, 422, ""),
            ("a misspelt field", {"records": [{"valur": {"foo": "bar"}}]}, KAFKA_JSON, 422, ""),
            ("no base64", records("not base64"), BINARY, 400, ""),
            ("records that are a text", {"records": "text"}, BINARY, 422, "400"),
            ("a record that is a text", {"records": ["text"]}, BINARY, 422, "400"),
            ("an object as bytes", records({"a": 1}), BINARY, 422, "400"),
            ("records that are a text, in Karapace's type", {"records": "text"}, OLD_JSON, 400, ""),
            ("a record that is a text, in Karapace's type", {"records": ["t"]}, OLD_JSON, 400, ""),
            ("no records, in Karapace's type", {"records": []}, OLD_JSON, 422, ""),
        )
    ),
    Case("an empty object", CONFLUENT, "POST /topics/w", 422, 422,
         "confluent TopicsResourceBinaryProduceTest testProduceInvalidRequest", body={},
         type=BINARY),
    Case("an unknown field", CONFLUENT, "POST /topics/w", 422, 422,
         "confluent-code entities/v2/ProduceRequest", body=records("AA==", header=[]), type=BINARY),
    Case("no JSON", CONFLUENT, "POST /topics/w", 400, 400, "confluent JsonParsingErrorTest",
         body=b"foobar", type=BINARY),
    Case("no base64", CONFLUENT, "POST /topics/w", 400, 400,
         "confluent-code entities/EntityUtils", body=records("@@"), type=BINARY),
    Case("no body", CONFLUENT, "POST /topics/w", 422, 42206, "confluent-code Errors", body=b"",
         type=BINARY),
    Case("no body", KARAPACE, "POST /topics/w", 422, 42206,
         "karapace-code rapu Missing request JSON", body=b"", type=BINARY,
         there="400", differs="an empty body where one is needed"),
    Case("an empty object", STRIMZI, "POST /topics/w", 422, 422,
         "strimzi ProducerIT emptyRecordTest", body={}, type=KAFKA_JSON),
    Case("an empty object of texts", STRIMZI, "POST /topics/w", 400, 400,
         "strimzi ProducerIT emptyRecordTest", body={}, type=TEXT, there="422/422", differs=SHAPE),
    *(
        Case(f"an object as {part} of a text", STRIMZI, "POST /topics/w", 422, 422,
             f"strimzi ProducerIT sendTextMessageWithWrong{part.title()}", type=TEXT,
             body={"records": [{"key": "k", "value": "v", part: {"a": "b"}}]})
        for part in ("key", "value")
    ),
    *(
        Case(f"{words} in a text", STRIMZI, "POST /topics/w", 400, 400,
             f"strimzi ProducerIT {source}", type=TEXT, body={"records": [record]})
        for words, source, record in (
            ("an unknown property", "sendMessageWithUnknownProperty", {"value": "v", "foo": "u"}),
            ("a partition that is a word", "sendToOneStringPartitionTest",
             {"value": "v", "partition": "karel"}),
            ("a partition below 0", "sendSimpleMessageToNegativePartition",
             {"value": "v", "partition": -1}),
        )
    ),
    Case("an unknown property", STRIMZI, "POST /topics/w", 422, 422,
         "strimzi ProducerIT sendMessageWithUnknownProperty", type=KAFKA_JSON,
         body=records("v", foo="u"), there="400/400", differs=SHAPE),
    Case("a record without a value", STRIMZI, "POST /topics/w", 200, RECEIPTS,
         "strimzi ProducerIT sendMessageLackingRequiredProperty", type=TEXT,
         body={"records": [{"key": "k"}]}, there="400/400", differs="a missing or null value"),
    Case("a partition in the record and in the path", STRIMZI, "POST /topics/w/partitions/1", 200,
         receipts(2), "strimzi ProducerIT sendToBothPartitionTest", body=records("v", partition=2),
         type=KAFKA_JSON, there="400/400", differs="`partition` in the record and in the path"),
    Case("a partition in the record and in the path", CONFLUENT, "POST /topics/w/partitions/1", 200,
         receipts(0), "confluent-code resources/v2/PartitionsResource",
         body=records("AA==", partition=0), type=BINARY),
    Case("a partition below 0 in the path", STRIMZI, "POST /topics/w/partitions/-1", 404, 404,
         "strimzi ProducerIT sendSimpleMessageToNegativePartition", body=records("v"),
         type=KAFKA_JSON, there="400/400", differs="a partition below 0, or that is no number"),
    Case("a partition that is a word in the path", STRIMZI, "POST /topics/w/partitions/karel", 404,
         404, "strimzi ProducerIT sendToOneStringPartitionTest", body=records("v"), type=KAFKA_JSON,
         there="400/400", differs="a partition below 0, or that is no number"),
    Case("a partition that is a word in the path", KARAPACE, "POST /topics/w/partitions/foo", 404,
         404, "karapace-code validate_partition_id", body=records("AA=="), type=BINARY),
    Case("a topic of a name that none can have", REDPANDA, "POST /topics/my%0Dtopic", 400, 40002,
         "redpanda test_invalid_topic_produce", body=records("AA=="), type=KAFKA_JSON),
    # ---- what is not there
    Case("an unknown topic", REDPANDA, "POST /topics/none", 404, 40401,
         "redpanda test_produce_topic", body=THREE, type=BINARY, accept=V2,
         there="200, 3 in each receipt", differs="a produce to an unknown topic"),
    Case("an unknown topic", KARAPACE, "POST /topics/none", 404, 40401,
         "karapace test_rest test_publish_to_nonexisting_topic", body=records("AA=="), type=BINARY),
    Case("a partition of an unknown topic", KARAPACE, "POST /topics/none/partitions/0", 404, 40401,
         "karapace test_rest test_publish_to_nonexisting_topic", body=records("AA=="), type=BINARY),
    Case("an unknown topic", STRIMZI, "POST /topics/none", 404, 40401,
         "strimzi ProducerIT sendToNonExistingTopicTest", body=records("v", partition=1),
         type=KAFKA_JSON, there="200, 404 in the receipt", differs="a produce to an unknown topic"),
    Case("an unknown partition", STRIMZI, "POST /topics/w", 404, {"offsets": [LOST]},
         "strimzi ProducerIT sendToNonExistingPartitionsTest", body=records("v", partition=1000),
         type=KAFKA_JSON, there="200, 404 in the receipt", differs=ONE_REASON),
    Case("an unknown partition", KARAPACE, "POST /topics/w", 404, {"offsets": [LOST]},
         "karapace test_rest test_internal", body=records("AA==", partition=100), type=BINARY,
         there="422, 2 in the receipt", differs=ONE_REASON),
    Case("an unknown partition in the path", CONFLUENT, "POST /topics/w/partitions/9", 404,
         {"offsets": [LOST]}, "confluent-code resources/v2/AbstractProduceAction",
         body=records("AA=="), type=BINARY, there="200, 50003 in the receipt", differs=ONE_REASON),
    Case("one partition of two is unknown", STRIMZI, "POST /topics/w", 200,
         {"offsets": [{**RECEIPT, "partition": 1}, LOST]},
         "strimzi ProducerIT sendMultipleRecordsWithOneInvalidPartitionTest", type=TEXT,
         body={"records": [{"value": "x", "partition": 1}, {"value": "y", "partition": 500}]},
         there="200, 404 in the receipt", differs="an error of one record"),
    Case("a record too large", KARAPACE, "POST /topics/small", 413, 41301,
         "karapace test_rest test_too_large_record", body=records("AAAA" * 200), type=BINARY,
         there="422, the error in the receipt", differs="a record or a body that is too large"),
    Case("a body too large", REDPANDA, "POST /topics/small", 413, 41301,
         "redpanda test_topic_produce_request_too_big", body=records(*["AAAA" * 200] * 20),
         type=BINARY, there="413/413", differs="a record or a body that is too large"),
    Case("a charset that is unknown", KARAPACE, "POST /topics/w", 415, 415,
         "karapace-code rapu Unknown charset", body=records("AA=="), there="400",
         type=f"{BINARY}; charset=deadbeef", differs="`charset` of a body"),
    Case("charset=utf-8", CONFLUENT, "POST /topics/w", 200, RECEIPTS,
         "confluent-v3 ProduceActionNoSchemaIntegrationTest produceStringCharsetUtf8",
         body=records("AA=="), type=f"{BINARY}; charset=UTF-8"),
)  # fmt: skip
