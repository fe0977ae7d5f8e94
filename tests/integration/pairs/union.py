"""Pairs of the v2 surface as the union of the proxies (3.3), and of its dialects (3.4)."""

from __future__ import annotations

import gzip
import json

from tests.integration.pairs.pair import (
    BINARY,
    CONFLUENT,
    EMPTY,
    JSON,
    STRIMZI,
    TEXT,
    V2,
    Pair,
    Step,
    a_record,
    error,
    records,
)
from tests.integration.pairs.rest_proxy import ASSIGNED, FORM, OF_RICH, P0, RECEIPT, RECEIPTS

FETCH = "/topics/t/partitions/0/records"
# A group of its own for each: what was committed is seen by who comes next.
_COMMITTED = {"offset": 2, **P0}

SURFACE = (
    Pair("3.3 records of a partition", "GET", f"{FETCH}?offset=0", 200,
         (a_record(headers=...), a_record(), a_record()),
         answer_headers={"Kafka-Next-Offset": "3", "Kafka-High-Watermark": "3"}),
    Pair("3.3 v1 types", "POST", "/topics/w", 200, RECEIPTS, records("AA=="),
         "application/vnd.kafka.binary.v1+json"),
    Pair("3.3 v1 types", "POST", "/topics/w", 200, RECEIPTS, records({"a": 1}),
         "application/vnd.kafka.json.v1+json"),
    *(
        Pair(row, "GET", "/topics/t/partitions/0/messages?offset=1&count=2", 200,
             (a_record(offset=1), a_record(offset=2)), theirs=404, differs="v1 messages")
        for row in ("3.3 messages", "1.3 v1 messages")
    ),
    Pair("3.3 v1 types", "POST", "/consumers/g/instances/i/topics/t", 404, error(404), theirs=404,
         differs="v1 consumers"),
    Pair("3.3 records in and out", "GET", "/topics/inout/partitions/0/records?offset=0", 200,
         (a_record(timestamp=1_600_000_000_000, headers=({"key": "h", "value": "AP8="},)),),
         given=(Step("POST", "/topics/inout", {"records": [{
             "key": None, "value": "AA==", "timestamp": "2020-09-13T12:26:40Z",
             "headers": [{"key": "h", "value": "AP8="}]}]}, BINARY),),
         differs="record headers, timestamps"),
    Pair("3.3 produce answer", "POST", "/topics/w", 404, error(40402, offsets=[...]),
         records("x", partition=8), TEXT, theirs=200,
         differs="every record of a produce failed for one reason"),
    Pair("3.3 Content-Type", "POST", "/topics/w", 415, error(415), records("x"), "",
         differs=FORM),
    Pair("3.3 Content-Type", "POST", "/topics/w", 200, RECEIPTS, records({"a": 1}),
         f"{JSON}; charset=utf-8", theirs=415,
         differs="`application/json` as Content-Type of a produce"),
    *(
        Pair("3.3 Accept", "GET", "{i}/records?timeout=0", 200, [a_record(headers=...)],
             headers={"Accept": accept}, answer_headers={"Content-Type": BINARY},
             given=OF_RICH,
             theirs=406, differs="Accept of a poll")
        for accept in ("*/*", "application/*", JSON, V2, f"text/html;q=0.9, {BINARY};q=0.2")
    ),
    Pair("3.3 Accept", "GET", "{i}/records", 406, error(40601), headers={"Accept": TEXT},
         given=ASSIGNED),
    Pair("3.3 text and async", "GET", "{i}/records?timeout=0", 200, [a_record(headers=...)],
         consumer={"format": "text", "auto.offset.reset": "earliest"},
         given=OF_RICH,
         answer_headers={"Content-Type": TEXT}),
    Pair("3.3 text and async", "POST", "/topics/w?async=true", 204, EMPTY, records("x"), TEXT,
         answer_headers={"Kafka-Durability": "none"}),
    Pair("3.3 admin and service", "GET", "/status/ready", 200, {"status": "ready", ...: ...},
         differs="probes"),
    Pair("3.3 admin and service", "GET", "/", 200,
         {"bridge_version": "1.2.0", "name": "kafkalog", "version": str}),
    Pair("3.3 at least one record", "GET",
         "/topics/large/partitions/0/records?offset=0&max_bytes=1", 200, (a_record(offset=0),),
         differs="a record larger than `max_bytes`"),
    Pair("3.3 partitioner", "POST", "/topics/w", 200,
         {**RECEIPTS, "offsets": tuple({**RECEIPT, "partition": (code & 0x7FFFFFFF) % 4}
                                       for code in (-973932308, 479470107))},
         {"records": [{"key": "21", "value": "x"}, {"key": "abc", "value": "x"}]}, TEXT,
         differs="a partition by key"),
    Pair("3.3 produce answer", "POST", "/topics/w", 200, RECEIPTS,
         gzip.compress(json.dumps(records("x")).encode()),
         TEXT, headers={"Content-Encoding": "gzip"}, theirs=400,
         differs="compressed request bodies"),
)  # fmt: skip

DIALECTS = (
    *(
        Pair("3.4 commit stores", "GET", "{i}/offsets", 200,
             {"offsets": ({**P0, "offset": stored, "metadata": ""},)}, {"partitions": [P0]}, V2,
             consumer=dialect, given=(Step("POST", "{i}/offsets", {member: [_COMMITTED]}),))
        for dialect, member, stored in (
            (CONFLUENT, "offsets", 3), (STRIMZI, "offsets", 2), (CONFLUENT, "partitions", 2),
        )
    ),
    *(
        # Deleting an instance commits what it read; another member of its group sees it.
        Pair("3.4 auto-commit default", "GET", f"/consumers/{name}/instances/b/offsets", 200,
             {"offsets": ({**P0, "offset": 3, "metadata": ""},)}, {"partitions": [P0]}, V2,
             given=(
                 Step("POST", f"/consumers/{name}", {**config, "name": "a"}),
                 Step("POST", f"/consumers/{name}", {"name": "b"}),
                 Step("POST", f"/consumers/{name}/instances/a/assignments", {"partitions": [P0]}),
                 Step("GET", f"/consumers/{name}/instances/a/records?timeout=0"),
                 Step("DELETE", f"/consumers/{name}/instances/a"),
             ))
        for name, config in (
            ("auto-c", {"auto.offset.reset": "earliest"}),
            ("auto-s", {"auto.offset.reset": "earliest", "isolation.level": "read_uncommitted"}),
        )
    ),
    Pair("3.4 GET offsets", "GET", "{i}/offsets", 200, {"offsets": ()}, {"partitions": [P0]}, V2,
         differs="partitions without a commit"),
)  # fmt: skip

PAIRS = (*SURFACE, *DIALECTS)
