"""Pairs of Confluent's REST Proxy: media types, its v2 surface, its consumers (1.1, 1.3)."""

from __future__ import annotations

import re

from tests.integration.pairs.pair import (
    CONFLUENT,
    EMPTY,
    JSON,
    TEXT,
    V2,
    Pair,
    Step,
    a_record,
    error,
    records,
)

RECEIPT = {"partition": int, "offset": int, "error_code": None, "error": None}
RECEIPTS = {
    "offsets": [RECEIPT],
    "key_schema_id": None,
    "value_schema_id": None,
    "durability": "synced",
}
REGISTRY = "avro, jsonschema, protobuf"
FORM = "no Content-Type, or a form's"
P0 = {"topic": "t", "partition": 0}
SUBSCRIBED = (Step("POST", "{i}/subscription", {"topics": ["t"]}),)
# The one record of the topic rich.
RICH = {"value": "x", "timestamp": 1_700_000_000_000, "headers": [{"key": "h", "value": None}]}
OF_RICH = (Step("POST", "{i}/assignments", {"partitions": [{"topic": "rich", "partition": 0}]}),)
ASSIGNED = (Step("POST", "{i}/assignments", {"partitions": [P0]}),)
READ = (*ASSIGNED, Step("GET", "{i}/records?timeout=0"))

MEDIA_TYPES = (
    Pair("1.1 text", "GET", "/topics/t/partitions/0/records?offset=1&max_bytes=1", 200,
         (a_record(value="v1"),), headers={"Accept": TEXT}, answer_headers={"Content-Type": TEXT}),
    *(
        Pair("1.1 avro, jsonschema, protobuf", "POST", "/topics/w", 415,
             error(415, message=re.compile(".*no(ne)?\\b.*|.*schema registry.*")), records("x"),
             f"application/vnd.kafka.{name}.v2+json", theirs=200, differs=REGISTRY)
        for name in ("avro", "jsonschema", "protobuf")
    ),
    Pair("1.1 application/json", "POST", "/topics/w", 200, RECEIPTS, records({"a": 1}), JSON,
         theirs=415, differs="`application/json` as Content-Type of a produce"),
    Pair("1.1 octet-stream and v1", "POST", "/topics/w", 415, error(415), records("x"),
         "application/octet-stream", theirs=200,
         differs="`application/octet-stream` as Content-Type of a v2 produce"),
)  # fmt: skip

METADATA = (
    Pair("1.3 GET offsets of a partition", "GET", "/topics/cut/partitions/0/offsets", 200,
         {"beginning_offset": 3, "end_offset": 10}),
    Pair("1.3 GET offsets of a partition", "GET", "/topics/none/partitions/0/offsets", 404,
         error(40401)),
    Pair("1.3 GET offsets of a partition", "GET", "/topics/t/partitions/9/offsets", 404,
         error(40402)),
)  # fmt: skip

PRODUCE = (
    Pair("1.3 POST /topics/{t}", "POST", "/topics/w", 200, RECEIPTS,
         {**records("x"), "key_schema_id": None, "value_schema_id": 7}, TEXT),
    Pair("1.3 a record that fails", "POST", "/topics/w", 200,
         {**RECEIPTS, "offsets": (
             RECEIPT,
             {"partition": None, "offset": None, "error_code": 40402, "error": str,
              "message": str},
         )},
         {"records": [{"value": "x"}, {"value": "y", "partition": 9}]}, TEXT,
         differs="an error of one record"),
    Pair("1.3 a record that fails", "POST", "/topics/w", 404,
         error(40402, offsets=[{"error_code": 40402, ...: ...}]), records("x", partition=9), TEXT,
         theirs=200, differs="every record of a produce failed for one reason"),
    *(
        Pair("1.3 broken bodies", "POST", "/topics/w", 415,
             error(415, message=re.compile(".*application/vnd.kafka.binary.v2.json.*")),
             records("x"), media, differs=FORM)
        for media in ("", "application/x-www-form-urlencoded")
    ),
    Pair("1.3 no headers, no timestamps", "GET",
         "/topics/t/partitions/0/records?offset=0&max_bytes=1", 200,
         (a_record(timestamp=1000, headers=({"key": "h", "value": "eA=="},)),),
         differs="record headers, timestamps"),
)  # fmt: skip

INSTANCES = (
    Pair("1.3 POST /consumers/{g}", "POST", "/consumers/g", 200,
         {"instance_id": re.compile("rest-consumer-[0-9a-f-]+"),
          "base_uri": re.compile("http://127.0.0.1:[0-9]+/consumers/g/instances/rest-consumer-.*")},
         {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false",
          "fetch.min.bytes": "1", "consumer.request.timeout.ms": 500}, V2),
    Pair("1.3 POST /consumers/{g}", "POST", "/consumers/g", 422, error(42204),
         {"fetch.min.bytes": 10_000_001}, V2, theirs=(422, 40001),
         differs="a config of a consumer out of range"),
    Pair("1.3 GET subscription", "GET", "{i}/subscription", 200,
         {"topics": ("t",), "partitions": ({"t": (0, 1)},)}, given=SUBSCRIBED),
    Pair("1.3 GET records", "GET", "{i}/records", 406,
         error(40602, details={"topic": "bytes", "partition": 0, "offset": 0}),
         consumer={**CONFLUENT, "format": "json"}, theirs=(408, 40801),
         given=(Step("POST", "{i}/subscription", {"topics": ["bytes"]}),),
         differs="JSON or UTF-8 that is none"),
)  # fmt: skip

OFFSETS = (
    Pair("1.3 POST offsets", "POST", "{i}/offsets?async=true", 200, (), given=READ),
    Pair("1.3 POST offsets", "POST", "{i}/offsets", 200, (),
         {"offsets": [{**P0, "offset": 1, "metadata": "m"}]}, V2),
    Pair("1.3 GET offsets", "GET", "{i}/offsets", 200,
         {"offsets": ({**P0, "offset": 2, "metadata": "m"},)},
         {"partitions": [P0, {"topic": "t", "partition": 1}]}, V2,
         given=(Step("POST", "{i}/offsets", {"offsets": [{**P0, "offset": 1, "metadata": "m"}]}),)),
    Pair("1.3 GET offsets", "GET", "{i}/offsets", 200, {"offsets": ()}, given=ASSIGNED,
         theirs=(404, 40402), differs="`GET .../offsets` without a body"),
    Pair("1.3 POST positions", "POST", "{i}/positions", 204, EMPTY,
         {"timestamps": [{**P0, "timestamp": "2999-01-01T00:00:00Z"}]}, V2, given=ASSIGNED,
         theirs=500, differs="a position by a time later than every record"),
    Pair("1.3 POST positions", "POST", "{i}/positions", 409, error(40903),
         {"offsets": [{**P0, "offset": 1}]}, V2),
    Pair("1.3 commit without body", "GET", "{i}/offsets", 200,
         {"offsets": ({**P0, "offset": 1, "metadata": ""},)}, {"partitions": [P0]}, V2,
         given=(*ASSIGNED, Step("GET", "{i}/records?timeout=0&max_bytes=1"),
                Step("POST", "{i}/offsets")),
         differs="a commit without a body"),
    Pair("1.3 timeout of a poll", "GET", "{i}/records?timeout=50", 200, (),
         consumer={**CONFLUENT, "consumer.request.timeout.ms": 0},
         given=(*ASSIGNED, Step("POST", "{i}/positions/end", {"partitions": [P0]})),
         differs="`timeout` above the instance's own"),
    Pair("1.3 max_bytes", "GET", "{i}/records?timeout=0&max_bytes=10", 200,
         (a_record(topic="large", offset=0),), differs="a record larger than `max_bytes`",
         given=(Step("POST", "{i}/subscription", {"topics": ["large"]}),)),
)  # fmt: skip

PAIRS = (*MEDIA_TYPES, *METADATA, *PRODUCE, *INSTANCES, *OFFSETS)
