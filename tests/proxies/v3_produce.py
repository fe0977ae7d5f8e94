"""Produce of v3: a stream of records, and a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.proxies.case import JSON, V3, Case

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM = "POST {c}/topics/w/records"
BATCH = "POST {c}/topics/w/records:batch"
RECEIPT = {"error_code": 200, "cluster_id": str, "topic_name": "w", "partition_id": int,
           "offset": int, "timestamp": str}  # fmt: skip
FAILED = {"error_code": 400, "message": str}
FINER = "errors in receipts of `records`"
SUITE = "confluent-v3 ProduceActionNoSchemaIntegrationTest"
BATCHES = "confluent-v3 ProduceBatchActionIntegrationTest"


def typed(kind: str, data: object) -> dict[str, object]:
    """A key or a value."""
    return {"type": kind, "data": data}


def sized(kind: str, size: int) -> dict[str, object]:
    """As a receipt names it."""
    return {"type": kind, "size": size}


def batch(*entries: Mapping[str, object]) -> dict[str, object]:
    """Entries 0, 1, ..."""
    return {"entries": [{"id": str(number), **each} for number, each in enumerate(entries)]}


# What one record may be, and what is said of it.
RECORDS: tuple[tuple[str, str, dict[str, object], dict[str, object]], ...] = (
    ("bytes", "produceBinary", {"key": typed("BINARY", "AA=="), "value": typed("BINARY", "AAE=")},
     {"key": sized("BINARY", 1), "value": sized("BINARY", 2)}),
    ("no bytes", "produceBinaryWithNullData",
     {"key": typed("BINARY", None), "value": typed("BINARY", None)}, {}),
    ("a text", "produceString", {"key": typed("STRING", "k"), "value": typed("STRING", "value")},
     {"key": sized("STRING", 1), "value": sized("STRING", 5)}),
    ("an empty text", "produceStringWithEmptyData",
     {"key": typed("STRING", ""), "value": typed("STRING", "")},
     {"key": sized("STRING", 0), "value": sized("STRING", 0)}),
    ("no text", "produceStringWithNullData",
     {"key": typed("STRING", None), "value": typed("STRING", None)}, {}),
    ("JSON", "produceJson", {"key": typed("JSON", "k"), "value": typed("JSON", {"a": 1})},
     {"key": sized("JSON", 3), "value": {"type": "JSON"}}),
    ("no JSON", "produceJsonWithNullData",
     {"key": typed("JSON", None), "value": typed("JSON", None)}, {}),
    ("a partition", "produceStringWithPartitionId",
     {"partition_id": 2, "value": typed("STRING", "v")}, {"partition_id": 2}),
    ("a time", "produceStringWithTimestamp",
     {"timestamp": "2024-01-02T03:04:05.000Z", "value": typed("STRING", "v")},
     {"timestamp": "2024-01-02T03:04:05.000Z"}),
    ("headers", "produceStringWithHeaders",
     {"headers": [{"name": "h", "value": "AA=="}, {"name": "h", "value": None}],
      "value": typed("STRING", "v")}, {}),
    ("a key alone", "produceStringKeyOnly", {"key": typed("STRING", "k")},
     {"key": sized("STRING", 1)}),
    ("a value alone", "produceStringValueOnly", {"value": typed("STRING", "v")},
     {"value": sized("STRING", 1)}),
    ("nothing", "produceNothing", {"partition_id": 0}, {"partition_id": 0}),
)  # fmt: skip
# What is no record; the error's number in a receipt.
REFUSED: tuple[tuple[str, dict[str, object], int], ...] = (
    ("no base64", {"key": typed("BINARY", "fooba"), "value": typed("BINARY", "fooba")}, 400),
    ("a number as text", {"value": typed("STRING", 5)}, 400),
    ("a partition that is a word", {"partition_id": "one"}, 400),
    ("a time that is a word", {"timestamp": "now"}, 400),
)  # fmt: skip

CASES = (
    *(
        Case(f"a record: {words}", V3, STREAM, 200, {**RECEIPT, **receipt}, f"{SUITE} {source}",
             body=record, type=JSON, media=JSON)
        for words, source, record, receipt in RECORDS
    ),
    *(
        Case(f"an entry: {words}", V3, BATCH, 207,
             {"successes": [{"id": "0", "offset": int, **receipt}], "failures": []},
             f"{BATCHES} {source}", body=batch(record), type=JSON, media=JSON)
        for words, source, record, receipt in RECORDS
    ),
    *(
        Case(f"no record: {words}", V3, STREAM, 200, {"error_code": code, "message": str},
             f"{SUITE} produceBinaryWithInvalidData", body=record, type=JSON)
        for words, record, code in REFUSED
    ),
    Case("no record: an unknown field", V3, STREAM, 200, FAILED,
         f"{SUITE} produceWithInvalidData_throwsBadRequest", type=JSON,
         body={"records": {"subject": "foobar"}}),
    Case("no entry: no base64", V3, BATCH, 207,
         {"successes": [], "failures": [{"id": "0", "error_code": 400, "message": str}]},
         f"{BATCHES} produceBinaryWithInvalidData", body=batch(REFUSED[0][1]), type=JSON),
    Case("no batch: an unknown field", V3, BATCH, 422, 422,
         f"{BATCHES} produceWithInvalidData_throwsBadRequest", type=JSON,
         body={"records": {"subject": "foobar"}}),
    Case("no batch: no entries", V3, BATCH, 422, 42208, "confluent-code Errors PRODUCE_BATCH",
         body={"entries": []}, type=JSON),
    Case("no batch: one id twice", V3, BATCH, 422, 42208, "confluent-code Errors PRODUCE_BATCH",
         body={"entries": [{"id": "a"}, {"id": "a"}]}, type=JSON),
    Case("ten entries", V3, BATCH, 207,
         {"successes": [{"id": str(number)} for number in range(10)], "failures": []},
         f"{BATCHES} produceJsonBatch", type=JSON,
         body=batch(*({"value": typed("JSON", number)} for number in range(10)))),
    Case("eleven entries", V3, BATCH, 207,
         {"successes": [{"id": str(number)} for number in range(11)], "failures": []},
         "confluent-code Errors PRODUCE_BATCH_EXCEPTION_TOO_MANY_ENTRIES", type=JSON,
         body=batch(*({"value": typed("JSON", number)} for number in range(11))),
         there="422/42208", differs="entries of `records:batch`"),
    Case("an entry to an unknown partition", V3, BATCH, 207,
         {"successes": [{"id": "0"}],
          "failures": [{"id": "1", "error_code": 40403, "message": str}]},
         "confluent-openapi produceRecordsBatch", type=JSON,
         body=batch({"partition_id": 0}, {"partition_id": 9}), there="207, 404 in the failure",
         differs=FINER),
    Case("a record in UTF-8", V3, STREAM, 200, RECEIPT, f"{SUITE} produceStringCharsetUtf8",
         body={"value": typed("STRING", "v")}, type=f"{JSON}; charset=UTF-8"),
    Case("a record in ISO-8859-1", V3, STREAM, 415, 415, f"{SUITE} produceStringCharsetIso88591",
         body={"value": typed("STRING", "v")}, type=f"{JSON}; charset=ISO-8859-1", there="200",
         differs="`charset` of a body"),
    Case("a record in a charset that is none", V3, STREAM, 415, 415,
         f"{SUITE} produceStringCharsetInvalid", body={"value": typed("STRING", "v")},
         type=f"{JSON}; charset=DEADBEEF", there="400", differs="`charset` of a body"),
    Case("a record without a type", V3, STREAM, 200, {**RECEIPT, "value": sized("BINARY", 1)},
         "confluent-code controllers/RecordSerializerFacade", body={"value": {"data": "AA=="}},
         type=JSON, there="200, without the type",
         differs="`type` in the receipt of a key or value that did not say it"),
    Case("JSON as it was sent", V3, STREAM, 200, {**RECEIPT, "value": sized("JSON", 3)},
         "confluent-code controllers/SchemalessRecordSerializer", type=JSON,
         there="200, formatted again", differs="JSON data",
         body=b'{"value":{"type":"JSON","data":1.0}}'),
    *(
        Case(f"a format with schemas: {name}", V3, STREAM, 200, {"error_code": 422, "message": str},
             "confluent-openapi ProduceRequestData", body={"value": typed(name, {})}, type=JSON,
             there="200, with a schema", differs="`type` AVRO, JSONSCHEMA, PROTOBUF")
        for name in ("AVRO", "JSONSCHEMA", "PROTOBUF")
    ),
    Case("a record of an unknown topic", V3, "POST {c}/topics/none/records", 404, 40403,
         "confluent-openapi produceRecords 404", body={"value": typed("STRING", "v")}, type=JSON),
    Case("a record in another cluster", V3, "POST /v3/clusters/foobar/topics/w/records", 404, 40403,
         "confluent-openapi produceRecords 404", body={"value": typed("STRING", "v")}, type=JSON,
         there="404/404", differs="an unknown cluster, partition, group or lag in v3"),
    Case("a record to an unknown partition", V3, STREAM, 200,
         {"error_code": 40403, "message": str}, "confluent-openapi produceRecords", type=JSON,
         body={"partition_id": 9}, there="200, 404 in the receipt", differs=FINER),
    Case("no records", V3, STREAM, 422, 42206, "confluent-code Errors INVALID_PAYLOAD", body=b"",
         type=JSON),
    Case("records of another type", V3, STREAM, 415, 415, "confluent-openapi produceRecords 415",
         body=b"{}", type="text/plain"),
    Case("records without a type of the body", V3, STREAM, 415, 415,
         "confluent-openapi produceRecords 415", body=json.dumps({"partition_id": 0}).encode()),
    Case("records behind a slash", V3, f"{STREAM}/", 200, RECEIPT,
         "confluent-code resources/v3/ProduceAction", body={"partition_id": 0}, type=JSON),
)  # fmt: skip
