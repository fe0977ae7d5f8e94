"""How fast keys and values become typed columns: MB/s of each format, in one thread.

Usage: python -m tests.bench.typed_values [RECORDS]
"""

from __future__ import annotations

import io
import json
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalog.jobs.archive.formats.avro_values import AvroDecoder
from kafkalog.jobs.archive.formats.json_values import JsonDecoder
from kafkalog.jobs.archive.formats.protobuf_values import ProtobufDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.jobs.archive.formats.decoder import Decoder

_AVRO = {
    "type": "record",
    "name": "Report",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "celsius", "type": "double"},
        {"name": "is_on", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def _report(number: int) -> dict[str, object]:
    return {
        "device": f"device-{number % 1000:06}",
        "number": number,
        "celsius": 20 + number % 100 / 8,
        "is_on": number % 2 == 0,
        "note": "a note of some length, as people write it" if number % 4 == 0 else None,
    }


def _formats(records: int) -> Iterator[tuple[str, Decoder, list[bytes]]]:
    import fastavro
    from google.protobuf import descriptor_pb2

    decoder = AvroDecoder.of(json.dumps(_AVRO))
    texts = [json.dumps(_report(each)).encode() for each in range(records)]
    yield "json", JsonDecoder(decoder.given), texts
    bad = list(texts)
    bad[:: max(1, records // 10)] = [b"{poison}"] * len(bad[:: max(1, records // 10)])
    yield "json, 10 bad", JsonDecoder(decoder.given), bad
    schema, rows = fastavro.parse_schema(_AVRO), []
    for each in range(records):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, _report(each))
        rows.append(stream.getvalue())
    yield "avro", decoder, rows
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="report.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Report")
    kinds = {"string": 9, "long": 3, "double": 1, "boolean": 8}
    for number, field in enumerate(_AVRO["fields"], 1):
        kind = field["type"] if isinstance(field["type"], str) else "string"  # type: ignore[index]
        message.field.add(name=field["name"], number=number, type=kinds[kind], label=1)  # type: ignore[index]
    data = files.SerializeToString()
    protobuf = ProtobufDecoder.of(data, "bench.Report")
    from kafkalog.jobs.archive.formats import protobuf_values

    made = protobuf_values._message_class(data, "bench.Report")
    messages = [
        made(**{name: each for name, each in _report(number).items() if each is not None})
        for number in range(records)
    ]
    yield "protobuf", protobuf, [each.SerializeToString() for each in messages]


def main() -> None:
    """Print one line a format: best of three, and CPU seconds, as the machine may be busy."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    for name, decoder, values in _formats(records):
        column = pa.array(values, pa.binary())
        best = float("inf")
        for _ in range(3):
            begin = time.process_time()
            decoded = decoder.decode(column)
            best = min(best, time.process_time() - begin)
        size = sum(map(len, values))
        print(
            f"{name:14} {size / best / 1e6:7.1f} MB/s of CPU, "
            f"{records / best / 1e6:6.2f} M records/s, {len(decoded.faults)} dead"
        )


if __name__ == "__main__":
    main()
