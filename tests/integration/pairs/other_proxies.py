"""Pairs of the Strimzi Bridge, Redpanda's HTTP Proxy and Karapace (1.4, 1.5, 1.6)."""

from __future__ import annotations

import re

from tests.integration.pairs.pair import (
    BINARY,
    EMPTY,
    JSON,
    JSON_RECORDS,
    STRIMZI,
    TEXT,
    V2,
    Pair,
    Step,
    a_record,
    error,
    records,
)
from tests.integration.pairs.rest_proxy import OF_RICH, P0, RECEIPT, RECEIPTS, RICH

FETCH = "/topics/t/partitions/0/records"

BRIDGE = (
    Pair("1.4 records", "GET", "/topics/rich/partitions/0/records?offset=0", 200,
         (a_record(timestamp=RICH["timestamp"], headers=({"key": "h", "value": None},)),),
         differs="record headers, timestamps"),
    Pair("1.4 produce answer", "POST", "/topics/w", 404,
         error(40402, offsets=({"error_code": 40402, "message": str, ...: ...},)),
         records("x", partition=9), TEXT, theirs=200,
         differs="every record of a produce failed for one reason"),
    Pair("1.4 partition in both", "POST", "/topics/w/partitions/1", 200,
         {**RECEIPTS, "offsets": ({**RECEIPT, "partition": 0},)}, records("x", partition=0), TEXT,
         theirs=422, differs="`partition` in the record and in the path"),
    Pair("1.4 create consumer", "POST", "/consumers/g", 200,
         {"instance_id": re.compile("kafka-bridge-consumer-[0-9a-f-]+"), "base_uri": str},
         {"enable.auto.commit": True, "isolation.level": "read_committed", "format": "text"}, V2),
    Pair("1.4 create consumer", "POST", "/consumers/g", 422, error(422, validation_errors=[str]),
         {"enable.auto.comit": True}, V2, theirs=400, differs="an unknown config of a consumer"),
    Pair("1.4 poll", "GET", "{i}/records?timeout=0&max_bytes=1", 200,
         (a_record(topic="large", offset=0),), consumer=STRIMZI, theirs=422,
         given=(Step("POST", "{i}/subscription", {"topics": ["large"]}),),
         differs="a record larger than `max_bytes`"),
    Pair("1.4 poll", "GET", "{i}/records?timeout=0", 200, [a_record(headers=...)],
         consumer=STRIMZI, given=OF_RICH,
         headers={"Accept": f"text/html, {BINARY};q=0.5"}, theirs=406,
         differs="Accept of a poll"),
    Pair("1.4 poll", "GET", "{i}/records?timeout=0", 409, error(40903), consumer=STRIMZI,
         theirs=500, differs="a poll without a subscription"),
    Pair("1.4 admin", "POST", "/admin/topics", 201, {},
         {"topic_name": "configured", "configs": {"retention.ms": "5"}}, JSON,
         differs="`configs` in `/admin/topics`"),
    Pair("1.4 admin", "POST", "/admin/topics", 409, error(40904), {"topic_name": "t"}, JSON,
         theirs=500, differs="topic creation over `/admin/topics` of one that exists"),
    Pair("1.4 service", "GET", "/", 200, {"bridge_version": str, ...: ...}),
    *(
        Pair("1.4 service", "GET", path, 200, {"openapi": "3.1.0", ...: ...})
        for path in ("/openapi", "/openapi/v3")
    ),
    *(
        Pair("1.4 service", "GET", path, 200, {"status": "ready", ...: ...}, differs="probes")
        for path in ("/healthy", "/ready")
    ),
    Pair("1.4 service", "GET", "/metrics", 200, ...,
         answer_headers={"Content-Type": re.compile("text/plain; version=0.0.4.*")}),
    Pair("1.4 disabled halves", "POST", "/topics/t-1", 403, error(40301), records("x"), TEXT,
         by="reader", theirs=503, differs="halves that are switched off"),
    Pair("1.4 base_uri", "POST", "/consumers/g", 200,
         {"instance_id": "seen", "base_uri": "https://k.example/p/consumers/g/instances/seen"},
         {"name": "seen"}, V2,
         headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "k.example",
                  "X-Forwarded-Path": "/p/consumers/g"},
         differs="the port in `base_uri`"),
    Pair("1.4 null value", "GET", "/topics/tombstone/partitions/0/records?offset=0", 200,
         (a_record(value=None),), differs="a missing or null value",
         given=(Step("POST", "/topics/tombstone", records(None), JSON_RECORDS),)),
)  # fmt: skip

REDPANDA = (
    Pair("1.5 params", "GET", f"{FETCH}?offset=1", 200, [a_record()], theirs=400,
         differs="fetch `offset`, `timeout`, `max_bytes`"),
    Pair("1.5 Accept", "GET", f"{FETCH}?offset=1", 200, [a_record()], headers={"Accept": "*/*"},
         answer_headers={"Content-Type": BINARY}, theirs=406,
         differs="`Accept: */*` or none on a fetch"),
    Pair("1.5 configs of a consumer", "POST", "/consumers/g", 200,
         {"instance_id": str, "base_uri": str},
         {"format": "text", "auto.offset.reset": "latest", "auto.commit.enable": "true"}, V2,
         theirs=400, differs="configs of a consumer that one proxy does not take"),
    Pair("1.5 commit body", "POST", "{i}/offsets", 204, EMPTY,
         {"partitions": [{**P0, "offset": 2}]}, V2),
    Pair("1.5 uncommitted partitions", "GET", "{i}/offsets", 200, {"offsets": ()},
         {"partitions": [P0]}, V2, differs="partitions without a commit"),
    Pair("1.5 unknown topic", "POST", "/topics/none", 404, error(40401), records("AA=="), BINARY,
         theirs=200, differs="a produce to an unknown topic"),
    Pair("1.5 Content-Type everywhere", "DELETE", "{i}", 204, EMPTY, {}, "text/plain", theirs=415,
         differs="bodies on GET and DELETE, and their Content-Type"),
    Pair("1.5 control characters", "GET", "/topics/a%07b", 400, error(40002),
         differs="names in paths"),
)  # fmt: skip

KARAPACE = (
    Pair("1.6 records", "GET", f"{FETCH}?offset=0&max_bytes=1", 200,
         (a_record(timestamp=1000, headers=({"key": "h", "value": "eA=="},)),)),
    Pair("1.6 auto.offset.reset", "GET", "{i}/records?timeout=0", 200, (),
         consumer={"auto.commit.enable": "false"},
         given=(Step("POST", "{i}/subscription", {"topics": ["t"]}),),
         differs="`auto.offset.reset` that is not said"),
    Pair("1.6 commit", "POST", "{i}/offsets", 200, (), {"offsets": [{**P0, "offset": 1}]}, V2,
         theirs=204, differs="a commit is answered 200 to Karapace's clients"),
    Pair("1.6 a record that fails", "POST", "/topics/w", 200,
         {**RECEIPTS, "offsets": (RECEIPT, {"error_code": 40402, "error": str, ...: ...})},
         {"records": [{"value": "x"}, {"value": "y", "partition": 9}]}, TEXT,
         differs="an error of one record"),
    Pair("1.6 unknown topic", "POST", "/topics/none", 404, error(40401), records("x"), TEXT,
         differs="a produce to an unknown topic"),
    Pair("1.6 health", "GET", "/_health", 200, {"status": "ready", ...: ...}, differs="probes"),
    Pair("1.6 falsy JSON", "GET", "/topics/falsy/partitions/0/records?offset=0&format=json", 200,
         tuple(a_record(value=value) for value in (0, False, "", None)),
         given=(Step("POST", "/topics/falsy", records(0, False, "", None), JSON_RECORDS),),
         differs="JSON text"),
    Pair("1.6 base64", "POST", "/topics/w", 400, error(400), records("Y-_="), BINARY,
         differs="base64"),
    Pair("1.6 partitioner", "POST", "/topics/w", 200,
         {**RECEIPTS, "offsets": ({**RECEIPT, "partition": (-790332482 & 0x7FFFFFFF) % 4},)},
         records("x", key="foobar"), TEXT, differs="a partition by key"),
    Pair("1.6 forbidden topics", "GET", "/topics/none", 403, error(40301), by="reader",
         theirs=(404, 40401), differs="a topic that may not be described"),
    Pair("1.6 forbidden topics", "GET", "/topics/private", 403, error(40301), by="reader",
         theirs=(404, 40401), differs="a topic that may not be described"),
)  # fmt: skip

PAIRS = (*BRIDGE, *REDPANDA, *KARAPACE)
