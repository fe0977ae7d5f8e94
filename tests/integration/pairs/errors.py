"""Pairs of the numbers of errors: those of the ecosystem (1.2) and those of ours (3.2)."""

from __future__ import annotations

from tests.integration.http_world import BATCHES, batch_of, now_ms
from tests.integration.pairs.pair import (
    BINARY,
    CONFLUENT,
    EMPTY,
    JSON,
    JSON_RECORDS,
    TEXT,
    V2,
    Pair,
    Step,
    error,
    records,
)
from tests.integration.pairs.rest_proxy import REGISTRY, SUBSCRIBED

RAW = "/v1/topics/{}/partitions/0/batches"
_SPOILT = bytearray(batch_of(b"x"))
_SPOILT[-1] ^= 1
_LATE = batch_of(b"x", timestamp_ms=now_ms() + 7_200_000)


ECOSYSTEM = (
    Pair("1.2 40001", "POST", "/consumers/g", 422, error(42204),
         {"fetch.min.bytes": 10_000_001}, V2, theirs=(422, 40001),
         differs="a config of a consumer out of range"),
    Pair("1.2 40402", "GET", "/topics/t/partitions/9/offsets", 404, error(40402)),
    Pair("1.2 40801", "GET", "{i}/records", 406, error(40602),
         consumer={**CONFLUENT, "format": "json"}, theirs=(408, 40801),
         given=(Step("POST", "{i}/subscription", {"topics": ["bytes"]}),),
         differs="JSON or UTF-8 that is none"),
    Pair("1.2 40901", "POST", "{i}/subscription", 204, EMPTY, {"topics": ["t"]}, V2,
         given=SUBSCRIBED),
    Pair("1.2 413", "POST", "/topics/small", 413, error(41301), records("x" * 600), TEXT,
         theirs=(413, 413), differs="a record or a body that is too large"),
    Pair("1.2 42201 42202", "POST", "/topics/w", 415, error(415),
         {"value_schema": None, **records(1)}, "application/vnd.kafka.avro.v2+json",
         theirs=(422, 42202), differs=REGISTRY),
    Pair("1.2 42203", "POST", "/topics/w", 415, error(415), records({"not": "the schema's"}),
         "application/vnd.kafka.jsonschema.v2+json", theirs=(422, 42203), differs=REGISTRY),
    Pair("1.2 42204", "POST", "/consumers/g", 422, error(42204), {"format": "avro"}, V2,
         differs=REGISTRY),
    Pair("1.2 42205 42206 42207", "POST", "/topics/w", 415, error(415),
         {"value_schema": "{", **records(1)}, "application/vnd.kafka.protobuf.v2+json",
         theirs=(422, 42205), differs=REGISTRY),
    Pair("1.2 50001", "POST", "/topics/w", 400, error(400), records("a"), BINARY,
         theirs=(500, 50001), differs="base64"),
)  # fmt: skip

OURS = (
    Pair("3.2 41001", "GET", RAW.format("cut") + "?offset=1", 410,
         error(41001, kafka_error="OFFSET_OUT_OF_RANGE",
               details={"log_start_offset": 3, "log_end_offset": 10, ...: ...})),
    Pair("3.2 shape", "GET", "/topics/none", 404,
         {"error_code": 40401, "message": str, "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION",
          "retriable": False, "request_id": str, "details": {"topic": "none"}},
         answer_headers={"Content-Type": V2}, differs="error body"),
    Pair("3.2 shape", "GET", "/v1/nothing", 404,
         {"error_code": 404, "message": str, "kafka_error": str, "retriable": False,
          "request_id": str},
         answer_headers={"Content-Type": JSON},
         differs="404, 405, 413, 415 of the HTTP layer"),
    Pair("3.2 shape", "DELETE", "/topics", 405, error(405),
         answer_headers={"Allow": str, "Content-Type": V2},
         differs="404, 405, 413, 415 of the HTTP layer"),
    Pair("3.2 40602", "GET", "/topics/bytes/partitions/0/records?offset=0", 406,
         error(40602, details={"topic": "bytes", "partition": 0, "offset": 0}),
         headers={"Accept": TEXT}, theirs=(408, 40801), differs="JSON or UTF-8 that is none"),
    Pair("3.2 40904", "POST", "/admin/topics", 409, error(40904), {"topic_name": "t"}, JSON_RECORDS,
         theirs=500, differs="topic creation over `/admin/topics` of one that exists"),
    Pair("3.2 41301 41302", "POST", "/topics/w", 413, error(41302), b" " * 3_000_001, TEXT,
         theirs=(413, 413), differs="a record or a body that is too large"),
    Pair("3.2 42209 42210 42211", "POST", RAW.format("w"), 422,
         error(42209, kafka_error="CORRUPT_MESSAGE"), bytes(_SPOILT), BATCHES),
    Pair("3.2 42209 42210 42211", "POST", RAW.format("w"), 422,
         error(42210, kafka_error="INVALID_RECORD"), batch_of(b"x")[:-1], BATCHES),
    Pair("3.2 42209 42210 42211", "POST", RAW.format("w"), 422,
         error(42211, kafka_error="INVALID_TIMESTAMP"), _LATE, BATCHES),
)  # fmt: skip

PAIRS = (*ECOSYSTEM, *OURS)
